"""Programs written for TensorFlowOnSpark, from its documentation, run unchanged on local Spark.

The programs are in the folder ``programs``; what each proves is in its first line. They share a process, because a
process costs a JVM and an import of TensorFlow, and their Keras is Keras 2. The one that is given to spark-submit runs
on YARN, in ``tests/rigs``, with Keras 3, on executors that have no tfos_lab installed.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark_home import QUICK_SUBMIT_ARGS, spark_environment

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
ROOT = HERE.parents[1]
_TIMEOUT_S = 900


@pytest.mark.tensorflow
@pytest.mark.timeout(_TIMEOUT_S + 20)
def test_a_suite_and_keras_2_pass_on_local_spark(spark_sessions, tmp_path):
    spark_sessions.close()  # two cores are enough for one Spark
    quiet = "--conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false"
    environ = spark_environment(tmp_path / "local") | {
        "MASTER": "local[2]",
        "PYSPARK_SUBMIT_ARGS": f"--py-files {PROGRAMS / 'line_trainer.py'} {quiet} {QUICK_SUBMIT_ARGS}",
        "PYTHONPATH": str(ROOT),
        "SPARK_WORKER_INSTANCES": "2",
        "TFOS_LAB_RUNS": str(tmp_path / "runs"),
        "TF_USE_LEGACY_KERAS": "1",
    }
    programs = {"suite.py": "", "train_with_keras.py": f"--export_dir {tmp_path / 'model'}"}
    commands = [f"{PROGRAMS / name} {arguments}" for name, arguments in programs.items()]
    output = tmp_path / "output"
    with output.open("wb") as file:
        done = subprocess.run(
            [sys.executable, HERE / "run_programs.py", *commands],
            env=environ,
            cwd=tmp_path,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT_S,
            check=False,
        )
    printed = output.read_text()
    assert done.returncode == 0, printed[-10_000:]
    ended = [line for line in printed.splitlines() if line.startswith("=== ")]
    assert ended == [f"=== {name} ended with 0" for name in programs], printed[-20_000:]
    assert "rows predicted: 1000" in printed
