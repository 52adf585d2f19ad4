"""An archive of the classes that Spark loads (CDS), from which the tests' JVMs start with two thirds of the work.

``python -m tests.support.class_archive`` makes it in the virtual environment, unless it is there; `make test` does so.
Java checks that an archive fits its own version and its class path; one that does not is not used, and nothing is said.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
_KEY = ARCHIVE.with_suffix(".key")
_PATIENCE_S = 600
# Work as tests give it: SQL, Arrow, Parquet and text files.
_SESSION = """
import sys
from pyspark import SparkContext
from pyspark.sql import SparkSession

options, folder = sys.argv[1:]
conf = {
    "spark.driver.extraJavaOptions": options,
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.warehouse.dir": folder,
    "spark.ui.enabled": "false",
}
spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
rows = spark.createDataFrame([(i, float(i), f"row {i}") for i in range(10)], "a long, b double, c string")
rows.selectExpr("a", "array(b) as b", "c").write.parquet(folder + "/rows")
read = spark.read.parquet(folder + "/rows").repartition(2).cache()
read.mapInArrow(lambda batches: batches, read.schema).groupBy("c").count().collect()
read.select("c").write.text(folder + "/text")
read.rdd.map(len).sum()
read.toPandas()
gateway = SparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


def options() -> str:
    """Return the options of a JVM that uses the archive, with a space before them; "" where there is none."""
    if not ARCHIVE.exists() or " " in str(ARCHIVE):
        return ""
    # By default, Java 17 writes to all pages of an archive, so that it is at another address each time.
    in_place = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
    return f" -XX:SharedArchiveFile={ARCHIVE} {in_place} -Xlog:disable"


def class_path(home: Path) -> str:
    """Return what the class path of a JVM has to begin with that uses the archive, as Spark's own scripts write it."""
    (first,) = home.glob("jars/slf4j-api-*.jar")
    return os.pathsep.join([f"{home}/conf", str(first), f"{home}/jars/*"])


def make() -> None:
    """Make the archive, if there is none for this Java and this Spark."""
    key = _key()
    if ARCHIVE.exists() and _KEY.exists() and _KEY.read_text() == key:
        return
    ARCHIVE.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "classes.jsa"
        jvm = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={made} -Xlog:disable"
        command = [sys.executable, "-c", _SESSION, jvm, f"{folder}/data"]
        environ = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        subprocess.run(command, timeout=_PATIENCE_S, check=True, capture_output=True, cwd=folder, env=environ)
        part = ARCHIVE.with_suffix(".part")
        part.write_bytes(made.read_bytes())
    _KEY.write_text(key)
    part.rename(ARCHIVE)


def _key() -> str:
    import pyspark

    java = subprocess.run(["java", "-version"], check=True, capture_output=True, text=True).stderr
    return f"{java}{pyspark.__version__} {pyspark.__file__}\n{_SESSION}"


if __name__ == "__main__":
    make()
