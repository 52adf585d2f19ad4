"""The working folder of a node: it shows what was there, and keeps what is new to itself."""

from __future__ import annotations

import shutil

import pytest

from tests.node.conftest import launch_spec
from tfos_lab.node.files import working_folder
from tfos_lab.node.files.working_folder import WorkingFolder


@pytest.fixture
def notebook(tmp_path):
    """The folder where the program was launched."""
    folder = tmp_path / "notebook"
    (folder / "data" / "deep").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    (folder / "data" / "x.csv").write_text("1,2")
    (folder / "data" / "deep" / "y.csv").write_text("3")
    (folder / ".hidden" / "z").touch()
    (folder / "train.py").touch()
    return folder


@pytest.fixture
def work(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return WorkingFolder(scratch)


def make(work, notebook, *, stays=False):
    return work.make(launch_spec(cwd=str(notebook), stays=stays))


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_what_was_there_is_found_by_its_relative_path(work, notebook):
    assert make(work, notebook) == str(work.path)
    assert names(work.path) == [".hidden", "data", "data/deep", "data/deep/y.csv", "data/x.csv", "train.py"]
    assert (work.path / "data" / "x.csv").read_text() == "1,2"
    assert (work.path / ".hidden" / "z").exists()
    assert work.files() == ({}, 0)


def test_what_is_created_or_removed_is_the_node_s_alone(work, notebook):
    make(work, notebook)
    before = names(notebook)
    (work.path / "model").mkdir()
    (work.path / "model" / "weights").write_text("w")
    (work.path / "data" / "new.csv").write_text("4")
    (work.path / "data" / "x.csv").unlink()
    shutil.rmtree(work.path / "data" / "deep")
    (work.path / "latest").symlink_to("model")
    assert names(notebook) == before
    found, links = work.files()
    assert (sorted(found), links) == (["work/data/new.csv", "work/model/weights"], 1)


def test_a_node_that_stays_where_it_was_launched_has_none(work, notebook):
    assert make(work, notebook, stays=True) == str(notebook)
    assert not work.path.exists()
    assert work.files() == ({}, 0)


def test_a_folder_of_very_many_files_is_one_link(work, notebook, monkeypatch):
    monkeypatch.setattr(working_folder, "_MOST_LINKS", 2)
    make(work, notebook)
    assert (work.path / "data" / "deep").is_symlink()
    assert (work.path / "data" / "x.csv").is_symlink()
    assert (work.path / "data" / "deep" / "y.csv").read_text() == "3"


def test_a_folder_that_cannot_be_read_is_not_shown(work, tmp_path):
    assert make(work, tmp_path / "no such folder") == str(work.path)
    assert names(work.path) == []


def test_a_node_without_room_for_a_folder_works_where_it_was_launched(work, notebook):
    work.path.touch()
    assert make(work, notebook) == str(notebook)


def test_what_was_written_is_moved_without_the_links(work, notebook, tmp_path):
    make(work, notebook)
    (work.path / "model").mkdir()
    (work.path / "model" / "weights").write_text("w")
    work.move_to(tmp_path / "kept")
    assert names(tmp_path / "kept") == ["work", "work/model", "work/model/weights"]
