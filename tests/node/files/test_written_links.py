"""Files that a working folder shows become the node's own when they are opened for writing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tfos_lab.node.files.written_links import own

WRITE = """
import os, sys
from pathlib import Path
from tfos_lab.node.files.written_links import own_what_is_written
own_what_is_written(Path(sys.argv[1]))
os.chdir(sys.argv[1])
Path("emptied").write_text("new")
with open("appended", "a") as file: file.write(" and new")
with open("changed", "r+b") as file: file.write(b"n")
os.close(os.open(os.fsencode("deep/emptied"), os.O_WRONLY | os.O_TRUNC))
Path("latest").write_text("newer")
assert Path("read").read_text() == "old"
try:
    Path("no such folder", "x").write_text("")
except FileNotFoundError:
    print("done")
"""


@pytest.fixture
def folders(tmp_path):
    """The folder of the notebook, and a working folder that shows it."""
    notebook, work = tmp_path / "notebook", tmp_path / "work"
    for name in ("emptied", "appended", "changed", "read", "deep/emptied"):
        for folder in (notebook, work):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (notebook / name).write_text("old")
        (work / name).symlink_to(notebook / name)
    (work / "own").write_text("own")
    (work / "latest").symlink_to("own")
    return notebook, work


def test_what_python_opens_for_writing_is_the_node_s_own(folders):
    notebook, work = folders
    done = subprocess.run([sys.executable, "-c", WRITE, work], capture_output=True, text=True, check=True)
    assert done.stdout == "done\n"
    assert {path.read_text() for path in notebook.rglob("*") if path.is_file()} == {"old"}
    written = {str(path.relative_to(work)): path.read_text() for path in work.rglob("*") if path.is_file()}
    assert written == {
        "emptied": "new",
        "appended": "old and new",
        "changed": "nld",
        "read": "old",
        "deep/emptied": "",
        "own": "newer",
        "latest": "newer",
    }
    assert {path.name for path in work.rglob("*") if path.is_symlink()} == {"latest", "read"}


def test_links_to_folders_and_links_elsewhere_are_kept(folders, tmp_path):
    notebook, work = folders
    (work / "whole").symlink_to(notebook / "deep")
    (tmp_path / "elsewhere").symlink_to(notebook / "read")
    for path in (work / "whole", work / "whole" / "emptied", tmp_path / "elsewhere", work / "own"):
        before = path.is_symlink()
        own(path, work, is_emptied=True)
        assert path.is_symlink() == before
    assert (notebook / "deep" / "emptied").read_text() == "old"
