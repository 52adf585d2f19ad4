"""The archive in which tfos_lab comes to executors, and the function that unpacks it there."""

from __future__ import annotations

import io
import subprocess
import zipfile

from pyspark import cloudpickle

from tests.support.bare_python import make_bare_python
from tfos_lab.core.code_archive import code_archive, make_finder


def test_the_archive_is_small_and_has_what_nodes_need():
    data, digest = code_archive()
    names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    assert {"tfos_lab/core/code_archive.py", "tfos_lab/node/child.py", "tfos_lab/data/tfrecords/reading.py"} <= set(
        names
    )
    assert not [name for name in names if "/engine/" in name or "/jupyter/" in name or "__pycache__" in name]
    assert len(data) < 300_000
    assert len(digest) == 16


def test_a_process_without_tfos_lab_finds_what_is_asked_for(tmp_path):
    python = make_bare_python(tmp_path / "bare")
    pickled = tmp_path / "find"
    pickled.write_bytes(cloudpickle.dumps(make_finder()))
    code = (
        "import gc, pickle, sys; find = pickle.load(open(sys.argv[1], 'rb')); "
        "print(find(*sys.argv[2:]).__module__, gc.get_freeze_count() > len(gc.get_objects()))"
    )
    words = [str(python), "-c", code, str(pickled), "tfos_lab.data.tfrecords.writing", "commit"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={"TMPDIR": str(tmp_path)})
    # What has been imported is left out when Spark's worker collects garbage, which it does after each task.
    assert done.stdout.split() == ["tfos_lab.data.tfrecords.writing", "True"]
    assert [path.name for path in tmp_path.glob("tfos_lab-*/code-*")] == [f"code-{code_archive()[1]}"]
