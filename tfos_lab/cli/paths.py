"""Paths of the checkout with its notebooks and data; and the environment for notebooks and for local Spark."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import tfos_lab
from tfos_lab.core.runtime_files import scratch_root

QUICKSTART = "01_mnist_quickstart.ipynb"
# If one of these is set, Spark is already configured.
_SPARK_SETTINGS = ("SPARK_CONF_DIR", "SPARK_HOME", "HADOOP_CONF_DIR", "YARN_CONF_DIR")


def find_checkout() -> Path | None:
    """Return the checkout that this package belongs to, or the current folder if that is a checkout."""
    for folder in (Path(tfos_lab.__file__).resolve().parents[1], Path.cwd()):
        if (folder / "notebooks" / QUICKSTART).is_file() and (folder / "pyproject.toml").is_file():
            return folder
    return None


def kernel_environ(environ: Mapping[str, str], checkout: Path | None) -> dict[str, str]:
    """Return the environment for notebooks: data beside the checkout is found, and local Spark is quiet.

    Variables that are set already are not changed.
    """
    environment = {
        # Spark would start the first python3 on PATH, which may be a different Python.
        "PYSPARK_PYTHON": sys.executable,
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    if checkout is not None and (checkout.parent / "shared" / "data").is_dir():
        environment["TFOS_LAB_DATA"] = str(checkout.parent / "shared" / "data")
    if not any(name in environ for name in _SPARK_SETTINGS):
        environment["SPARK_CONF_DIR"] = str(Path(__file__).parent / "spark_conf")
        environment["TFOS_LAB_SPARK_LOG"] = str(spark_log())
    return {**environment, **environ}


def spark_log() -> Path:
    """Return the file for the log messages of local Spark."""
    return scratch_root() / "spark.log"
