"""``ctx`` on a node: who it is, what it reports, where its files go."""

from __future__ import annotations

import getpass
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import tfos_lab
from tfos_lab import messages as m
from tfos_lab.errors import ConfigError, FeedError
from tfos_lab.node.context import NodeContext
from tfos_lab.node.feed.reader import FeedReader

SPEC = {"ps": ["p:1"], "chief": ["c:2"], "evaluator": ["e:3"], "worker": ["w:4", "w:5"]}


class Stand:
    """A context whose words are kept."""

    def __init__(self, **start):
        self.said = []
        self.finish = threading.Event()
        start = {
            "cluster_id": "c",
            "rank": 4,
            "cluster_spec": SPEC,
            "job_name": "worker",
            "task_index": 1,
            "is_chief": False,
            "payload": b"",
            "env": {},
            "log_dir": "/logs",
            **start,
        }
        self.feed = FeedReader(start["rank"], self.said.append)
        self.ctx = NodeContext(m.Start(**start), self.feed, self.said.append, self.finish)


def test_each_node_has_its_own_folder_for_event_files_and_another_after_a_restart():
    assert Stand(log_dir="/logs/").ctx.event_dir == "/logs/worker-1"
    assert Stand(log_dir="gs://bucket/logs", restart=2).ctx.event_dir == "gs://bucket/logs/worker-1-restart-2"


@pytest.mark.parametrize("job", ["ps", "evaluator"])
def test_nodes_that_do_not_train_are_told_that_they_are_fed_no_rows(job):
    ctx = Stand(job_name=job, task_index=0).ctx
    with pytest.raises(ConfigError, match=rf"^ctx\.dataset on {job}:0: rows are fed to the nodes that train; give it"):
        ctx.dataset(8)
    with pytest.raises(ConfigError, match=rf"^ctx\.epochs on {job}:0: "):
        _ = ctx.epochs


def test_a_folder_that_cannot_be_written_is_refused_before_the_training(tmp_path):
    (tmp_path / "file").write_text("")
    ctx = Stand(is_chief=True, log_dir=str(tmp_path / "file" / "logs")).ctx
    with pytest.raises(ConfigError) as caught:
        ctx.callbacks()
    host = socket.gethostname()
    assert str(caught.value) == (
        f"log_dir='{tmp_path}/file/logs': event files cannot be written there on {host} (Not a directory); "
        f"give a folder that {host} can write to"
    )


def test_a_node_knows_its_place():
    ctx = Stand().ctx
    assert (ctx.job_name, ctx.task_index, ctx.node, ctx.is_chief) == ("worker", 1, "worker:1", False)
    assert (ctx.worker_num, ctx.executor_id, ctx.log_dir) == (4, 4, "/logs")
    assert ctx.cluster_spec == SPEC
    assert repr(ctx) == "<worker:1 of 5 nodes>"


def test_chief_and_workers_train_and_the_others_do_not():
    assert Stand().ctx.num_workers == 3


def test_gpus_are_those_that_are_visible(monkeypatch):
    ctx = Stand().ctx
    for value, expected in (("0,2", ["0", "2"]), ("-1", []), ("", [])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert ctx.gpus == expected
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert ctx.gpus == []


def test_a_report_tells_step_and_numbers_whatever_they_are_made_of():
    stand = Stand()
    before = time.time()
    stand.ctx.report(3, total_steps=10, loss=np.float32(0.5), accuracy=np.array(0.25))
    (report,) = stand.said
    assert (report.rank, report.step, report.total_steps) == (4, 3, 10)
    assert report.metrics == {"loss": 0.5, "accuracy": 0.25}
    assert before <= report.time_s <= time.time()


def test_reports_without_a_step_count_up():
    stand = Stand()
    for step in (None, None, 10, None):
        stand.ctx.report(step, loss=1)
    assert [report.step for report in stand.said] == [1, 2, 10, 11]


def test_paths_are_hadoop_s(monkeypatch):
    ctx = Stand(default_fs="hdfs://nn:8020", working_dir="/w").ctx
    assert ctx.absolute_path("mnist") == f"hdfs://nn:8020/user/{getpass.getuser()}/mnist"
    assert (ctx.defaultFS, ctx.working_dir) == ("hdfs://nn:8020", "/w")
    local = Stand().ctx
    assert local.defaultFS == "file://"
    assert local.absolute_path("/data") == "file:///data"


def test_only_the_chief_s_model_goes_where_it_is_wanted(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_SCRATCH", str(tmp_path))
    assert Stand(is_chief=True).ctx.model_dir("hdfs://nn/model") == "hdfs://nn/model"
    assert Stand().ctx.model_dir("hdfs://nn/model") == str(tmp_path / "model" / "model")


@pytest.mark.parametrize("given", ["{}", "file://{}", "file:{}"])
def test_local_models_go_to_plain_paths_whose_parents_are_there(monkeypatch, tmp_path, given):
    monkeypatch.setenv("TFOS_LAB_SCRATCH", str(tmp_path / "scratch"))
    wanted = tmp_path / "a" / "b" / "m.keras"
    chief, worker = Stand(is_chief=True, default_fs="file:///"), Stand(default_fs="file:///")
    assert chief.ctx.model_dir(given.format(wanted)) == str(wanted)
    assert chief.said == [m.SavesTo(rank=4, path=str(wanted))]
    assert worker.ctx.model_dir(given.format(wanted)) == str(tmp_path / "scratch" / "model" / "m.keras")
    assert wanted.parent.is_dir()
    assert (tmp_path / "scratch" / "model").is_dir()
    assert Stand(is_chief=True, working_dir=str(tmp_path)).ctx.model_dir("c/d") == str(tmp_path / "c" / "d")
    assert [path.name for path in (tmp_path / "c").iterdir()] == []


def test_a_folder_for_models_that_cannot_be_made_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as caught:
        Stand(is_chief=True).ctx.model_dir(f"{tmp_path}/file/m.keras")
    assert str(caught.value) == (
        f"ctx.model_dir('{tmp_path}/file/m.keras'): {tmp_path}/file cannot be made on {socket.gethostname()} (File "
        "exists); save below ctx.output_dir, which comes to the notebook, or give a folder that the chief can write to"
    )


def test_the_output_folder_is_made_when_it_is_asked_for_and_that_is_told_once(tmp_path):
    stand = Stand(output_dir=str(tmp_path / "run" / "output"))
    assert not (tmp_path / "run").exists()
    assert stand.ctx.output_dir == stand.ctx.output_dir == str(tmp_path / "run" / "output")
    assert (tmp_path / "run" / "output").is_dir()
    assert stand.said == [m.OutputOpened(rank=4)]


def test_what_is_no_model_is_not_saved_as_one(tmp_path):
    ctx = Stand(output_dir=str(tmp_path)).ctx
    with pytest.raises(ConfigError, match=r"ctx\.save_model\(list\): a Keras model or a tf\.Module is needed"):
        ctx.save_model([1.0])
    assert list(tmp_path.iterdir()) == []


def test_training_is_done_when_the_driver_says_so():
    stand = Stand(job_name="ps")
    assert not stand.ctx.training_done
    assert not stand.ctx.wait_for_training(timeout_s=0.0)
    stand.finish.set()
    assert stand.ctx.training_done
    assert stand.ctx.wait_for_training()


def test_a_node_that_trains_does_not_wait_for_itself():
    with pytest.raises(ConfigError, match="on worker:1: it trains and would wait for itself"):
        Stand().ctx.wait_for_training()
    assert not Stand().ctx.wait_for_training(timeout_s=0.0)


def test_a_node_that_serves_says_so_and_waits_for_the_end():
    stand = Stand(job_name="ps", task_index=0, rank=0)
    stand.finish.set()
    stand.ctx.serve()
    (said,) = stand.said
    assert (said.state, said.rank) == ("serving", 0)


def test_wanting_no_more_rows_is_told():
    stand = Stand()
    stand.ctx.stop_feed()
    assert stand.said == [m.FeedStopped(rank=4)]


# ---- without a cluster --------------------------------------------------------------------------------------------


def test_a_function_can_be_called_plainly_with_a_local_context(tmp_path):
    ctx = tfos_lab.local_context(log_dir=str(tmp_path))
    assert (ctx.node, ctx.num_workers, ctx.is_chief, ctx.log_dir) == ("chief:0", 1, True, str(tmp_path))
    ctx.report(loss=1.0)
    assert Path(ctx.output_dir).is_dir()
    assert ctx.cluster_spec == {"chief": ["localhost:0"]}


def test_a_local_context_says_how_to_come_by_rows():
    with pytest.raises(FeedError, match=r"fed no rows: give the cell data=\.\.\., or call cluster\.train\(df\)"):
        _ = tfos_lab.local_context().epochs


def test_a_dataset_that_cannot_be_is_refused_with_all_reasons():
    with pytest.raises(ConfigError) as error:
        tfos_lab.local_context().dataset(0, remainder="wrap")
    assert error.value.problems == [
        "batch_size=0: a whole number of rows, at least 1, is needed",
        "remainder='wrap': use 'exact', 'pad' or 'drop'",
    ]
