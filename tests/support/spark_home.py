"""The Spark that pip installed, and an environment without settings of any other Spark."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support import class_archive

# These options halve the start-up time of a JVM that lives for seconds.
QUICK_JVM = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC{class_archive.options()}"
# As `PYSPARK_SUBMIT_ARGS`, for sessions that others make, such as those of notebooks.
QUICK_SUBMIT_ARGS = (
    f"--conf 'spark.driver.extraJavaOptions={QUICK_JVM}' --conf 'spark.executor.extraJavaOptions={QUICK_JVM}' "
    "pyspark-shell"
)


def spark_home() -> Path:
    """Return the folder of pip's pyspark."""
    import pyspark

    return Path(pyspark.__file__).parent


def spark_environment(local_dir: Path, *, python: Path | None = None, home: Path | None = None) -> dict[str, str]:
    """Return our environment without settings of Spark and Hadoop, for a Spark on loopback only.

    ``python`` is the executors' interpreter if not ours, and ``home`` another Spark's folder than `spark_home`.
    """
    outside = ("SPARK_", "PYSPARK_", "HADOOP_", "YARN_")  # a session on YARN may be alive in this process
    kept = {name: value for name, value in os.environ.items() if not name.startswith(outside)}
    return kept | {
        "SPARK_HOME": str(home or spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(local_dir),
        "PYSPARK_PYTHON": str(python or sys.executable),
    }
