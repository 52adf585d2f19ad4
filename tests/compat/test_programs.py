"""Programs written for TensorFlowOnSpark, from its documentation, run unchanged on a cluster and on local Spark.

The programs are in the folder ``programs``; what each proves is in its first line. Those that are suites share a
process, because a process costs a JVM and an import of TensorFlow. The cluster's executors have no tfos_lab installed.
Those that are given to spark-submit run on YARN, in ``tests/rigs``, one of them with Keras 2.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bare_python import make_bare_python
from tests.support.spark_home import QUICK_JVM, spark_environment

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
ROOT = HERE.parents[1]
_CONF = {
    "spark.default.parallelism": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.executor.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_OPTIONS = [word for name, value in _CONF.items() for word in ("--conf", f"{name}={value}")]
_OPTIONS += ["--py-files", str(PROGRAMS / "line_trainer.py")]
_TIMEOUT_S = 900


class Runner:
    """Runs commands with an environment in which only ``MASTER`` says where Spark is."""

    def __init__(self, master, folder, *, python=None):
        self._folder = folder
        quoted = " ".join(f'"{word}"' if " " in word else word for word in _OPTIONS)
        self._environ = spark_environment(folder / "local", python=python) | {
            "MASTER": master,
            "PYSPARK_SUBMIT_ARGS": f"{quoted} pyspark-shell",
            "PYTHONPATH": str(ROOT),
            "SPARK_WORKER_INSTANCES": "2",
            "TFOS_LAB_RUNS": str(folder / "runs"),
        }

    def run(self, *command):
        """Run a command; returns its exit code and its output, which is also in the file ``output``."""
        path = self._folder / "output"
        with path.open("wb") as output:
            process = subprocess.Popen(
                [str(word) for word in command],
                env=self._environ,
                cwd=self._folder,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        with process:
            try:
                code = process.wait(_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                pytest.fail(f"after {_TIMEOUT_S} s: {path.read_text()[-10_000:]}", pytrace=False)
        return code, path.read_text()

    def run_all(self, *commands):
        """Run programs in one process; returns their output."""
        code, output = self.run(sys.executable, HERE / "run_programs.py", *commands)
        assert code == 0, output[-10_000:]
        ended = [line for line in output.splitlines() if line.startswith("=== ")]
        names = [Path(command.split()[0]).name for command in commands]
        assert ended == [f"=== {name} ended with 0" for name in names], output[-20_000:]
        return output


@pytest.fixture
def on_local(spark_sessions, tmp_path):
    spark_sessions.close()  # two cores are enough for one Spark
    return Runner("local[*]", tmp_path)


@pytest.fixture
def on_standalone(spark_sessions, standalone, tmp_path):
    spark_sessions.close()  # it holds the cluster's executors
    # Executors have what nodes need, without tfos_lab: it comes with the job.
    return Runner(standalone, tmp_path, python=make_bare_python(tmp_path / "bare"))


# What is different where nodes are processes of this machine: who starts them, and where they find rows.
LOCALLY = (
    "cluster_suite.py ClusterTest.test_inference_answers_each_row ClusterTest.test_parameter_servers_run_on_the_driver"
)


@pytest.mark.tensorflow
@pytest.mark.timeout(_TIMEOUT_S + 20)
def test_suites_a_stream_and_keras_3_pass_on_local_spark(on_local, tmp_path):
    output = on_local.run_all(
        *(f"{PROGRAMS}/{suite}" for suite in (LOCALLY, "pipeline_suite.py", "parallel_suite.py")),
        f"{PROGRAMS / 'streaming.py'} --folder {tmp_path}",
        f"{PROGRAMS / 'train_with_keras.py'} --export_dir {tmp_path / 'model'}",
    )
    assert "rows predicted: 1000" in output


@pytest.mark.tensorflow
@pytest.mark.timeout(_TIMEOUT_S + 20)
def test_the_suite_of_clusters_passes_on_a_cluster(on_standalone):
    on_standalone.run_all(str(PROGRAMS / "cluster_suite.py"))
