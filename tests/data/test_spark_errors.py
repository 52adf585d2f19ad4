"""Errors of Spark, and what users read instead."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest

from tfos_lab.data.spark_errors import raises_own_errors
from tfos_lab.errors import ConfigError, RecordError
from tfos_lab.errors.channel import to_text

SESSION = SimpleNamespace(sparkContext=SimpleNamespace(pythonExec="/bin/python9"))
SPARK_ERROR = '[PYTHON_DATA_SOURCE_ERROR] Failed:\n  File "x.py", line 1\n{}\n SQLSTATE: 38000\n\tat org.apache.spark'


@pytest.mark.parametrize(
    ("last_line", "kind", "message"),
    [
        (to_text(RecordError(reason="a-file was cut off")), RecordError, "a-file was cut off$"),
        (to_text(ConfigError(["no path", "no schema"])), ConfigError, "no path; no schema$"),
        (
            "ModuleNotFoundError: No module named 'pyarrow.fs'",
            ConfigError,
            (
                r"Python workers lack pyarrow; they run '/bin/python9': install it there, or set .*\['PYSPARK_PYTHON"
                rf"'\] .* \(the notebook's own is {re.escape(sys.executable)}\), and try again$"
            ),
        ),
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has",
            ConfigError,
            r"workers are not of the notebook's version, 3\.\d+; they run '/bin/python9'",
        ),
        ("ValueError: something else", RuntimeError, "something else"),
    ],
)
def test_the_cause_is_raised_instead_of_spark_s_error(last_line, kind, message):
    with pytest.raises(kind, match=message), raises_own_errors(SESSION):
        raise RuntimeError(SPARK_ERROR.format(last_line))
