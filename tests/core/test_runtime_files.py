"""Files of several processes, which come and go while others look."""

from __future__ import annotations

import os
import shutil

from tfos_lab.core.runtime_files import files_in


def test_a_folder_that_goes_while_it_is_about_to_be_listed_has_no_files(monkeypatch, tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.claim").touch()
    scandir = os.scandir

    def scandir_too_late(path):
        if str(path) == str(tmp_path / "b"):
            monkeypatch.undo()
            shutil.rmtree(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scandir_too_late)
    found = list(files_in(tmp_path.glob("*"), "*.claim"))
    assert sorted(path.parent.name for path in found) == ["a", "c"]
    assert not (tmp_path / "b").exists()


def test_a_file_is_no_folder_with_files(tmp_path):
    (tmp_path / "log").touch()
    assert not list(files_in(tmp_path.glob("*"), "*.claim"))
