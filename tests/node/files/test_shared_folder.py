"""Whether all nodes see the same folder."""

from __future__ import annotations

import pytest

from tfos_lab.node.files import shared_folder
from tfos_lab.node.files.shared_folder import SharedFolder


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch):
    monkeypatch.setattr(shared_folder, "_PATIENCE_S", 0.0)


def folders_of(folder, *nodes):
    return [SharedFolder(str(folder), "cluster-1", node) for node in nodes]


@pytest.mark.parametrize("scheme", ["", "file://", "file:"])
def test_nodes_that_see_each_other_s_marks_share_the_folder_and_leave_nothing(tmp_path, scheme):
    folders = folders_of(f"{scheme}{tmp_path}/logs", "chief:0", "worker:0")
    for folder in folders:
        folder.mark()
    assert [folder.problem(["chief:0", "worker:0"]) for folder in folders] == ["", ""]
    for folder in folders:
        folder.clear()
    assert list((tmp_path / "logs").iterdir()) == []


def test_a_node_that_does_not_see_another_s_mark_says_what_to_do(tmp_path):
    (chief,), (worker,) = folders_of(tmp_path / "a", "chief:0"), folders_of(tmp_path / "b", "worker:0")
    chief.mark()
    worker.mark()
    problem = worker.problem(["chief:0", "worker:0"])
    assert problem.startswith(f"'{tmp_path}/b' is another folder for worker:0 (on ")
    assert problem.endswith(
        ") than for chief:0, and restarts go on from a backup in it: give log_dir=..., a folder on a file system that "
        "all nodes share"
    )


def test_a_folder_that_cannot_be_written_to_is_a_problem(tmp_path):
    (tmp_path / "file").touch()
    (chief,) = folders_of(tmp_path / "file" / "logs", "chief:0")
    chief.mark()
    problem = chief.problem(["chief:0"])
    assert "cannot be written to on" in problem
    assert "(Not a directory), and restarts go on from a backup in it: give log_dir=..." in problem
    assert chief.own_mark == ""
    chief.clear()


@pytest.mark.parametrize("folder", ["", "hdfs://nn/logs", "s3://bucket/logs"])
def test_file_systems_that_are_shared_by_nature_get_no_mark(folder):
    (chief,) = folders_of(folder, "chief:0")
    chief.mark()
    assert chief.problem(["chief:0", "worker:0"]) == ""
    assert chief.own_mark == ""
    chief.clear()
