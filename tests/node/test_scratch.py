"""An agent removes its folder when it ends, and those of agents that were killed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tfos_lab.node import failure_note
from tfos_lab.node.forkserver.leftovers import sweep
from tfos_lab.node.scratch import Scratch


@pytest.fixture
def gone():
    """The pid of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def leave_folder(root, name, *, age_s=100.0):
    """Create a folder with a spool, as a killed agent leaves it."""
    folder = root / name
    (folder / "spool").mkdir(parents=True)
    (folder / "spool" / "0-0-1.arrow").write_bytes(b"rows")
    then = folder.stat().st_mtime - age_s
    os.utime(folder, (then, then))
    return folder


def test_a_folder_is_removed_by_its_owner(tmp_path):
    scratch = Scratch(tmp_path, "cluster", 1)
    (scratch.path / "spool").mkdir()
    assert scratch.path.stat().st_mode & 0o777 == 0o700
    scratch.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_agent_is_removed_by_the_next(tmp_path, gone):
    leave_folder(tmp_path, f"cluster-20261121-1-{gone}")
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_folders_of_live_agents_recent_ones_and_other_folders_stay(tmp_path, gone):
    folders = [
        leave_folder(tmp_path, f"cluster-0-{os.getpid()}"),
        leave_folder(tmp_path, f"cluster-0-{gone}", age_s=0.0),
        leave_folder(tmp_path, f"code-{gone}"),
        leave_folder(tmp_path, "0123456789ab"),
    ]
    sweep(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(folders)


def test_a_folder_whose_owner_lives_in_another_container_stays(tmp_path, gone):
    scratch = Scratch(tmp_path, "cluster", 1)
    elsewhere = scratch.path.rename(tmp_path / f"cluster-1-{gone}")
    os.utime(elsewhere, (0, 0))
    sweep(tmp_path)
    assert elsewhere.exists()


def test_why_a_cluster_failed_is_known_for_a_while_after_its_nodes_have_ended(tmp_path):
    scratch = Scratch(tmp_path, "cluster", 1)
    failure_note.leave(scratch.path, "worker:0: ValueError: enough")
    failure_note.leave(scratch.path, "stopped")
    scratch.remove()
    sweep(tmp_path)
    assert failure_note.recall(scratch.path) == "worker:0: ValueError: enough"
    (file,) = tmp_path.iterdir()
    os.utime(file, (0, 0))
    sweep(tmp_path)
    assert failure_note.recall(scratch.path) is None
    assert list(tmp_path.iterdir()) == []
