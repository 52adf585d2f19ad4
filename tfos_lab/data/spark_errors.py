"""What Spark's errors hold: errors of ours that were raised in its Python workers, and packages that those lack."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tfos_lab.data.spark_python import how_to_choose
from tfos_lab.errors import ConfigError, RecordError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OURS = re.compile(r"tfos_lab\.errors\.(ConfigError|RecordError): (.*)")
_OTHER_VERSION = "PYTHON_VERSION_MISMATCH"
_LACKING = re.compile(r"ModuleNotFoundError: No module named '(\w+)")


@contextlib.contextmanager
def raises_own_errors(spark: SparkSession) -> Iterator[None]:
    """Raise errors of ours as such, not as what Spark makes of them; name a package that Spark's workers lack."""
    try:
        yield
    except Exception as error:
        text = str(error)
        if found := _OURS.search(text):
            raise ConfigError([found[2]]) if found[1] == "ConfigError" else RecordError(reason=found[2]) from error
        if _OTHER_VERSION in text:
            ours = ".".join(map(str, sys.version_info[:2]))
            problem = f"Spark's Python workers are not of the notebook's version, {ours}; {how_to_choose(spark)}"
            raise ConfigError([problem]) from error
        if lacking := _LACKING.search(text):
            problem = f"Spark's Python workers lack {lacking[1]}; {how_to_choose(spark)}"
            raise ConfigError([problem]) from error
        raise
