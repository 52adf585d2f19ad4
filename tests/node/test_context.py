"""``ctx``: which node it is, which rows and files are its own, what it reports, where its files go."""

import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import tfos_lab
from tfos_lab.core import messages as m
from tfos_lab.errors import ConfigError, FeedError
from tfos_lab.node.feed.reader import FeedReader

SPEC = {"ps": ["p:1"], "chief": ["c:2"], "evaluator": ["e:3"], "worker": ["w:4", "w:5"]}


class Rig:
    """A context whose messages are recorded."""

    def __init__(self, **start):
        self.sent = []
        self.finish = threading.Event()
        start = {
            "rank": 4,
            "cluster_spec": SPEC,
            "job_name": "worker",
            "task_index": 1,
            "is_chief": False,
            "log_dir": "/logs",
            **start,
        }
        self.feed = FeedReader(start["rank"], self.sent.append)
        self.ctx = tfos_lab.NodeContext(m.Start(**start), self.feed, self.sent.append, self.finish)


def test_each_node_has_its_own_folder_for_event_files_and_another_after_a_restart():
    assert Rig(log_dir="/logs/").ctx.event_dir == "/logs/worker-1"
    assert Rig(log_dir="gs://bucket/logs", restart=2).ctx.event_dir == "gs://bucket/logs/worker-1-restart-2"


def test_the_folder_for_backups_is_there_once_it_is_asked_for(tmp_path):
    ctx = Rig(backup_dir=str(tmp_path / "run" / "backup")).ctx
    assert list(tmp_path.iterdir()) == []
    Path(ctx.backup_dir, "state").write_text("5")
    assert (Rig().ctx.backup_dir, Rig(backup_dir="gs://bucket/backup").ctx.backup_dir) == ("", "gs://bucket/backup")


def test_an_event_folder_that_cannot_be_written_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    ctx = Rig(is_chief=True, log_dir=str(tmp_path / "file" / "logs")).ctx
    with pytest.raises(ConfigError) as caught:
        ctx.callbacks()
    host = socket.gethostname()
    assert str(caught.value) == (
        f"log_dir='{tmp_path}/file/logs': event files cannot be written there on {host} (Not a directory); "
        f"give a folder that {host} can write to"
    )


def test_tab_shows_the_public_names_only():
    shown = {name for name in dir(Rig().ctx) if not name.startswith("_")}
    names = """
        absolute_path args backup_dir callbacks cluster_spec data_feed dataset defaultFS epochs even event_dir files
        gpus is_chief job_name log_dir model_dir node output_dir put_results rank report restart rows_as_files
        save_model shard show start_server stop_feed strategy task_index training_done validation wait_for_training
        worker_num working_dir world_size
    """
    assert shown == set(names.split())


def test_a_call_with_an_argument_too_few_or_too_many_is_told_by_the_name_that_users_write():
    ctx = Rig().ctx
    with pytest.raises(TypeError, match=r"^ctx\.dataset\(\) missing 1 required positional argument: 'batch_size'"):
        ctx.dataset(label="y")
    with pytest.raises(TypeError, match=r"^ctx\.strategy\(\) takes 1 positional argument but 2 were given"):
        ctx.strategy("mirrored")


def test_a_name_that_ctx_does_not_have_is_told_with_the_one_that_is_meant():
    ctx = Rig().ctx
    with pytest.raises(AttributeError, match=r"^ctx has no 'datset'; did you mean ctx\.dataset\?$"):
        ctx.datset(64)
    with pytest.raises(AttributeError, match=r"^ctx has no 'xyzzy'$"):
        ctx.xyzzy  # noqa: B018 - it raises
    assert not hasattr(ctx, "_xyzzy")
    del ctx._feed
    with pytest.raises(AttributeError, match=r"^ctx has no '_feed'$"):
        ctx.epochs  # noqa: B018 - it raises


def test_a_report_sends_numbers_of_any_type_and_a_step_which_counts_up():
    rig = Rig()
    before = time.time()
    rig.ctx.report(3, total_steps=10, loss=np.float32(0.5), accuracy=np.array(0.25))
    for step in (None, 10, None):
        rig.ctx.report(step, loss=1)
    report = rig.sent[0]
    assert [report.step for report in rig.sent] == [3, 4, 10, 11]
    assert (report.total_steps, report.metrics) == (10, {"loss": 0.5, "accuracy": 0.25})
    assert before <= report.time_s <= time.time()
    with pytest.raises(ConfigError, match=r"^ctx\.report: loss='low' is not a number$"):
        rig.ctx.report(loss="low")
    with pytest.raises(ConfigError, match=r"^ctx\.report: loss=array\(\[1, 2\]\) is not a number$"):
        rig.ctx.report(loss=np.array([1, 2]))


@pytest.mark.tensorflow("here")
def test_a_report_takes_arrays_of_one_element_and_the_variables_of_a_strategy():
    import keras
    import tensorflow as tf

    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        optimizer, mean = keras.optimizers.SGD(0.5), keras.metrics.Mean()
        own = tf.Variable(3.0, aggregation=tf.VariableAggregation.MEAN)
        mean.update_state(2.0)
    rig = Rig()
    rig.ctx.report(loss=tf.constant([[0.25]]), rate=optimizer.learning_rate, total=mean.total, own=own, row=np.ones(1))
    assert rig.sent[0].metrics == {"loss": 0.25, "rate": 0.5, "total": 2, "own": 3, "row": 1}


def test_columns_of_several_levels_are_titled_by_those_that_are_given():
    pd = pytest.importorskip("pandas")
    rig = Rig()
    grouped = pd.DataFrame({"g": ["a", "b", "a"], "v": [1, 2, 3]}).groupby("g").agg(["mean", "sum"])
    rig.ctx.show(grouped, "by group")
    assert rig.sent[0].content.columns == ["g", "v mean", "v sum"]


def test_only_the_chief_saves_to_the_given_path(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_SCRATCH", str(tmp_path))
    assert Rig(is_chief=True).ctx.model_dir("hdfs://nn/model") == "hdfs://nn/model"
    assert Rig().ctx.model_dir("hdfs://nn/model") == str(tmp_path / "model" / "model")


@pytest.mark.parametrize("given", ["{}", "file://{}", "file:{}"])
def test_local_models_go_to_plain_paths_whose_parents_exist(monkeypatch, tmp_path, given):
    monkeypatch.setenv("TFOS_LAB_SCRATCH", str(tmp_path / "scratch"))
    wanted = tmp_path / "a" / "b" / "m.keras"
    chief, worker = Rig(is_chief=True, default_fs="file:///"), Rig(default_fs="file:///")
    assert chief.ctx.model_dir(given.format(wanted)) == str(wanted)
    assert chief.sent == [m.SavesTo(path=str(wanted))]
    assert worker.ctx.model_dir(given.format(wanted)) == str(tmp_path / "scratch" / "model" / "m.keras")
    assert wanted.parent.is_dir()
    assert (tmp_path / "scratch" / "model").is_dir()
    assert Rig(is_chief=True, working_dir=str(tmp_path)).ctx.model_dir("c/d") == str(tmp_path / "c" / "d")
    assert [path.name for path in (tmp_path / "c").iterdir()] == []


def test_a_folder_for_models_that_cannot_be_created_is_refused_with_advice(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as caught:
        Rig(is_chief=True).ctx.model_dir(f"{tmp_path}/file/m.keras")
    assert str(caught.value) == (
        f"ctx.model_dir('{tmp_path}/file/m.keras'): {tmp_path}/file cannot be made on {socket.gethostname()} (File "
        "exists); save below ctx.output_dir, which comes to the notebook, or give a folder that the chief can write to"
    )


def test_anything_but_a_model_is_refused_by_save_model(tmp_path):
    ctx = Rig(output_dir=str(tmp_path)).ctx
    with pytest.raises(ConfigError, match=r"ctx\.save_model\(list\): a Keras model or a tf\.Module is needed"):
        ctx.save_model([1.0])
    assert list(tmp_path.iterdir()) == []


def test_a_node_that_trains_does_not_wait_for_itself():
    with pytest.raises(ConfigError, match="on worker:1: it trains and would wait for itself"):
        Rig().ctx.wait_for_training()
    assert not Rig().ctx.wait_for_training(timeout=0.0)


def test_a_large_cluster_s_nodes_report_less_often_each():
    few, many = Rig(), Rig(cluster_spec={"worker": ["w:1"] * 4096})
    for rig in (few, many):
        for step in range(3000):
            rig.ctx.report(step)
    assert len(many.sent) < len(few.sent)


# ---- its share ------------------------------------------------------------------------------------------------------


NODES = [("ps", 0), ("chief", 0), ("evaluator", 0), ("worker", 0), ("worker", 1)]


def contexts():
    return [Rig(job_name=job, task_index=index, rank=rank).ctx for rank, (job, index) in enumerate(NODES)]


def training():
    return [ctx for ctx in contexts() if ctx.rank is not None]


def test_nodes_that_train_are_counted_beside_ps_and_evaluator_with_the_chief_first():
    assert [ctx.rank for ctx in contexts()] == [None, 0, None, 1, 2]
    assert {ctx.world_size for ctx in contexts()} == {3}
    spec = {"ps": ["a:1"], "worker": ["b:1", "c:1"]}
    assert [Rig(cluster_spec=spec, job_name="worker", task_index=index).ctx.rank for index in (0, 1)] == [0, 1]
    spec = {"worker": ["b:1"], "master": ["c:1"]}
    assert Rig(cluster_spec=spec, job_name="worker", task_index=0).ctx.rank == 1


@pytest.mark.parametrize("make", [list, tuple, np.array])
def test_each_path_of_a_list_is_on_one_node_and_the_others_get_all(make):
    files = [f"part-{number}" for number in range(7)]
    shares = [ctx.shard(make(files)) for ctx in training()]
    assert shares == [files[0::3], files[1::3], files[2::3]]
    assert all(isinstance(share, list) for share in shares)
    assert [ctx.shard(make(files)) for ctx in contexts() if ctx.rank is None] == [files, files]
    assert training()[1].shard([Path("a"), Path("b"), Path("c")]) == [Path("b")]


def test_fewer_files_than_nodes_are_refused_on_all_that_train(tmp_path):
    (tmp_path / "one.csv").write_text("1")
    for ctx in training():
        with pytest.raises(ConfigError, match=r"^ctx.shard of a list: 1 file for 3 nodes that train, so that some "):
            ctx.shard(["one"])
        with pytest.raises(ConfigError, match=r"^ctx.files\('.*'\): 1 file for 3 nodes that train, .*: ctx.shard"):
            ctx.files(f"{tmp_path}/*.csv")
    assert contexts()[0].files(f"{tmp_path}/*.csv") == [f"{tmp_path}/one.csv"]


@pytest.mark.parametrize("given", ["/data/*", b"/data", Path("/data"), 3, {"a": 1}, None])
def test_what_is_no_list_and_no_dataset_is_refused(given):
    with pytest.raises(ConfigError, match=r"^ctx.shard\(.*\): a \w+ cannot be divided; give it a tf.data.Dataset or a"):
        Rig().ctx.shard(given)


def test_files_of_a_folder_are_divided_without_what_spark_hides(tmp_path):
    names = [f"part-{number}" for number in range(5)]
    for name in (*names, "_SUCCESS", ".part-0.crc"):
        (tmp_path / name).write_text(name)
    shares = [ctx.files(str(tmp_path)) for ctx in training()]
    assert [[Path(path).name for path in share] for share in shares] == [names[0::3], names[1::3], names[2::3]]
    assert training()[0].files(f"file://{tmp_path}/part-[0-2]") == [f"{tmp_path}/part-0"]
    relative = Rig(working_dir=str(tmp_path.parent)).ctx.files(f"{tmp_path.name}/part-*")
    assert relative == shares[2]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("{}/*.csv", "no file has such a name"),
        ("{}/nothing", "there is no such file or folder"),
        ("{}/empty", "this folder has no files"),
        ("nosuch://host/x", "neither pyarrow nor fsspec can open nosuch://"),
    ],
)
def test_a_pattern_without_files_is_refused(tmp_path, pattern, reason):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=reason):
        Rig().ctx.files(pattern.format(tmp_path))
    with pytest.raises(ConfigError, match="give it one path or pattern, as text"):
        Rig().ctx.files(None)


@pytest.mark.tensorflow("here")
def test_each_element_of_a_dataset_is_on_one_node():
    import tensorflow as tf

    rows = tf.data.Dataset.range(8)
    shares = [ctx.shard(rows) for ctx in training()]
    assert [list(share.as_numpy_iterator()) for share in shares] == [[0, 3, 6], [1, 4, 7], [2, 5]]
    whole = Rig(job_name="evaluator", task_index=0).ctx.shard(rows)
    assert list(whole.as_numpy_iterator()) == list(range(8))


@pytest.mark.tensorflow("here")
def test_a_dataset_that_each_node_shuffles_differently_is_refused():
    import tensorflow as tf

    tf.random.set_seed(None)  # with one for all, which another test may have set, nodes shuffle alike
    ctx = Rig().ctx
    for chance in (tf.data.Dataset.range(9).shuffle(9), tf.data.Dataset.range(9).shuffle(9).batch(2)):
        with pytest.raises(ConfigError, match=r"^ctx.shard\(dataset\): .* rows would be on several nodes or on none"):
            ctx.shard(chance)
    ctx.shard(tf.data.Dataset.range(9).shuffle(9, seed=1))
    assert len(list(tfos_lab.local_context().shard(tf.data.Dataset.range(9).shuffle(9)))) == 9


# ---- without a cluster --------------------------------------------------------------------------------------------


def test_a_function_can_be_called_plainly_with_a_local_context(tmp_path):
    ctx = tfos_lab.local_context(log_dir=str(tmp_path))
    assert (ctx.node, ctx.rank, ctx.world_size, ctx.is_chief, ctx.log_dir) == ("chief:0", 0, 1, True, str(tmp_path))
    ctx.report(loss=1.0)
    assert Path(ctx.output_dir).is_dir()
    assert ctx.cluster_spec == {"chief": ["localhost:0"]}
    assert ctx.shard(["a"]) == ["a"]
    with pytest.raises(FeedError, match=r"fed no rows: give the cell data=\.\.\., or call cluster\.train\(df\)"):
        _ = ctx.epochs


def test_an_impossible_dataset_is_refused_with_all_reasons():
    with pytest.raises(ConfigError) as error:
        tfos_lab.local_context().dataset(0, remainder="wrap")
    assert error.value.problems == [
        "batch_size=0: a whole number of rows, at least 1, is needed",
        "remainder='wrap': use 'exact', 'pad' or 'drop'",
    ]
