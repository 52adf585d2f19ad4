"""Where things lie: the checkout with its notebooks, data and benchmarks; and the environment of notebooks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import tfos_lab
from tfos_lab.core.runtime_files import scratch_root

QUICKSTART = "01_mnist_quickstart.ipynb"
# With these set, somebody has chosen how Spark is set up.
_SPARK_IS_SET_UP = ("SPARK_CONF_DIR", "SPARK_HOME", "HADOOP_CONF_DIR", "YARN_CONF_DIR")


def find_checkout() -> Path | None:
    """Return the folder that this package was checked out to, or the current one if that is a checkout."""
    for folder in (Path(tfos_lab.__file__).resolve().parents[1], Path.cwd()):
        if (folder / "notebooks" / QUICKSTART).is_file() and (folder / "pyproject.toml").is_file():
            return folder
    return None


def kernel_environ(environ: Mapping[str, str], checkout: Path | None) -> dict[str, str]:
    """Return the environment for notebooks: data that lies beside the checkout is found, and local Spark is quiet.

    What is set already stays as it is.
    """
    made = {
        # Spark would start the first python3 on PATH, which may be another one than this.
        "PYSPARK_PYTHON": sys.executable,
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    if checkout is not None and (checkout.parent / "shared" / "data").is_dir():
        made["TFOS_LAB_DATA"] = str(checkout.parent / "shared" / "data")
    if not any(name in environ for name in _SPARK_IS_SET_UP):
        made["SPARK_CONF_DIR"] = str(Path(__file__).parent / "spark_conf")
        made["TFOS_LAB_SPARK_LOG"] = str(spark_log())
    return {**made, **environ}


def spark_log() -> Path:
    """Return the file that local Spark's own messages go to."""
    return scratch_root() / "spark.log"
