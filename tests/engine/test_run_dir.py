"""The folder of a run: where it is made, what it is called, and where things lie in it."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from tfos_lab.engine.run_dir import RunDir


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_each_run_has_a_folder_of_its_own_that_is_named_after_it(runs):
    first, second = RunDir.make("mnist"), RunDir.make("mnist")
    assert first.path != second.path
    assert first.path.parent == runs
    assert re.fullmatch(r"mnist-\d{8}-\d{6}-[0-9a-f]{4}", first.id)
    assert first.path.is_dir()


def test_only_the_user_can_open_it(runs):
    before = os.umask(0)
    try:
        run_dir = RunDir.make("mnist")
        part = run_dir.make_part("1")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(one.path.stat().st_mode) for one in (run_dir, part)] == [0o700, 0o700]


def test_a_name_that_is_no_file_name_becomes_one(runs):
    assert RunDir.make("../a b/ü").id.startswith("---a-b-ü-")
    assert len(RunDir.make("x" * 200).id) < 70


def test_where_nothing_can_be_written_the_user_s_cache_takes_it(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "file" / "runs"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert RunDir.make("mnist").path.parent == tmp_path / ".cache" / "tfos_lab" / "runs"
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "file")
    with pytest.raises(PermissionError, match="no run folder can be made in"):
        RunDir.make("mnist")


def test_everything_lies_below_it(tmp_path):
    run_dir = RunDir(tmp_path / "run")
    assert run_dir.log("worker:1") == tmp_path / "run" / "worker-1.log"
    assert run_dir.output_of("worker:1") == tmp_path / "run" / "output" / "worker-1"
    assert run_dir.partial_output(3) == tmp_path / "run" / ".output-3.part"
    assert run_dir.log_dir == str(tmp_path / "run" / "events")
    assert run_dir.checkpoint(2) == (tmp_path / "run" / "checkpoint-2").as_uri()
    assert run_dir.backup == f"{tmp_path}/run/backup-run"


def test_event_files_and_backups_follow_log_dir(tmp_path):
    run_dir = RunDir(tmp_path / "run", "gs://bucket/logs/")
    assert run_dir.log_dir == "gs://bucket/logs/"
    assert run_dir.backup_home == "gs://bucket/logs/"
    assert run_dir.backup == "gs://bucket/logs/backup-run"


def test_the_probe_cannot_be_guessed(tmp_path):
    run_dir = RunDir(tmp_path)
    assert run_dir.make_probe() != run_dir.make_probe()
    assert stat.S_IMODE(run_dir.make_probe().stat().st_mode) == 0o600


def test_the_record_is_replaced_as_a_whole_and_is_the_user_s_own(tmp_path):
    run_dir = RunDir(tmp_path)
    run_dir.write_record(b"one")
    with run_dir.record.open("rb") as reader:
        run_dir.write_record(b"two")
        assert reader.read() == b"one"
    assert run_dir.record.read_bytes() == b"two"
    assert stat.S_IMODE(run_dir.record.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_link_in_the_place_of_the_partial_record_is_not_followed(tmp_path):
    target = tmp_path / "target"
    (tmp_path / ".run.json.part").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        RunDir(tmp_path).write_record(b"{}")
    assert not target.exists()
