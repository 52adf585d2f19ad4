"""What Spark's errors hold: errors of ours that were raised in its Python workers, and packages that those lack."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator

from tfos_lab.errors import ConfigError, RecordError

_OURS = re.compile(r"tfos_lab\.errors\.(ConfigError|RecordError): (.*)")
_LACKING = re.compile(r"ModuleNotFoundError: No module named '(\w+)")


@contextlib.contextmanager
def our_own_words() -> Iterator[None]:
    """Raise errors of ours as such, not as what Spark makes of them; name a package that Spark's workers lack."""
    try:
        yield
    except Exception as error:
        text = str(error)
        if found := _OURS.search(text):
            raise ConfigError([found[2]]) if found[1] == "ConfigError" else RecordError(reason=found[2]) from error
        if lacking := _LACKING.search(text):
            problem = (
                f"Spark's Python workers lack {lacking[1]}: install it there, or point PYSPARK_PYTHON (before the "
                f"session is made) or spark.pyspark.python at a Python that has it; the notebook's is {sys.executable}"
            )
            raise ConfigError([problem]) from error
        raise
