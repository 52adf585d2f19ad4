"""An interpreter without tfos_lab, for executors that must get it from the driver."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.bare_python import make_bare_python


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory):
    return make_bare_python(tmp_path_factory.mktemp("python") / "bare", hidden={"tensorflow"})


@pytest.mark.parametrize(("package", "found"), [("pyarrow", True), ("tfos_lab", False), ("tensorflow", False)])
def test_a_bare_python_has_all_but_tfos_lab_and_what_is_hidden(bare_python, package, found, tmp_path):
    command = [bare_python, "-c", f"import {package}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is found
    assert found or f"No module named '{package}'" in done.stderr


def test_executors_can_run_a_bare_python(bare_python, new_spark, standalone):
    def interpreter(batches):
        import sys

        import pyarrow as pa

        list(batches)
        yield pa.RecordBatch.from_pydict({"path": [sys.executable]})

    session = new_spark(standalone, python=bare_python)
    (row,) = session.range(0, 1, 1, 1).mapInArrow(interpreter, "path string").collect()
    assert row.path == str(bare_python)
