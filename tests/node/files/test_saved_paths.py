"""Which saves a node reports, and the marks that it leaves beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.conftest import launch_spec
from tfos_lab import messages as m
from tfos_lab.node.files.saved_paths import SavedPaths

WORKING_FOLDER = Path("/scratch/work")


def test_a_folder_is_reported_once_with_a_mark_that_is_removed_again(tmp_path):
    sent = []
    paths = SavedPaths(launch_spec(executor="7", cwd="/"), WORKING_FOLDER, sent.append)
    for name in ("first.keras", "second.keras"):
        paths.report(f"{tmp_path}/{name}")
    [message] = sent
    assert message == m.SavesTo(rank=0, path=f"{tmp_path}/first.keras", mark=message.mark, vanishes=True)
    assert Path(message.mark).parent.parent == tmp_path
    assert Path(message.mark).exists()
    paths.clear()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("executor", "cwd"), [("this machine", "/"), ("7", "/elsewhere")])
def test_only_spark_s_folder_for_the_job_is_removed_with_it(tmp_path, executor, cwd):
    sent = []
    paths = SavedPaths(launch_spec(executor=executor, cwd=cwd), WORKING_FOLDER, sent.append)
    paths.report(f"{tmp_path}/model.keras")
    assert not sent[0].vanishes
    paths.clear()


def test_a_node_in_the_driver_s_own_process_reports_nothing(tmp_path):
    sent = []
    SavedPaths(launch_spec(executor=""), WORKING_FOLDER, sent.append).report(f"{tmp_path}/model.keras")
    assert sent == []


def test_a_model_in_the_working_folder_is_sent_and_not_reported():
    sent = []
    SavedPaths(launch_spec(executor="7", cwd="/"), WORKING_FOLDER, sent.append).report("/scratch/work/m.keras")
    assert sent == []
