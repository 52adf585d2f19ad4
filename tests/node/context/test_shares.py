"""A node's share of files and datasets: every element on one node that trains, and all of them on any other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tfos_lab
from tests.node.context.test_context import SPEC, Rig
from tfos_lab.compat.TFSparkNode import TFNodeContext
from tfos_lab.errors import ConfigError

NODES = [("ps", 0), ("chief", 0), ("evaluator", 0), ("worker", 0), ("worker", 1)]


def contexts():
    return [Rig(job_name=job, task_index=index, rank=rank).ctx for rank, (job, index) in enumerate(NODES)]


def training():
    return [ctx for ctx in contexts() if ctx.rank is not None]


def test_nodes_that_train_are_counted_beside_ps_and_evaluator_with_the_chief_first():
    assert [ctx.rank for ctx in contexts()] == [None, 0, None, 1, 2]
    assert {ctx.num_trainers for ctx in contexts()} == {3}
    spec = {"ps": ["a:1"], "worker": ["b:1", "c:1"]}
    assert [Rig(cluster_spec=spec, job_name="worker", task_index=index).ctx.rank for index in (0, 1)] == [0, 1]
    spec = {"worker": ["b:1"], "master": ["c:1"]}
    assert Rig(cluster_spec=spec, job_name="worker", task_index=0).ctx.rank == 1


def test_one_process_is_the_only_one():
    ctx = tfos_lab.local_context()
    assert (ctx.rank, ctx.num_trainers, ctx.shard(["a"])) == (0, 1, ["a"])
    alone = TFNodeContext()
    assert (alone.rank, alone.num_trainers, alone.shard(["a"])) == (0, 1, ["a"])


def test_tfos_context_has_the_same_numbers():
    for rank, (job, index) in enumerate(NODES):
        ctx = TFNodeContext(rank, job, index, SPEC)
        assert (ctx.rank, ctx.num_trainers) == (contexts()[rank].rank, 3)
    assert TFNodeContext(3, "worker", 0, SPEC).shard(list("abcd")) == ["b"]


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


@pytest.mark.tensorflow
def test_each_element_of_a_dataset_is_on_one_node_and_no_strategy_divides_it_again():
    import tensorflow as tf

    from tfos_lab.node.keras.presharded import is_presharded

    rows = tf.data.Dataset.range(8)
    shares = [ctx.shard(rows) for ctx in training()]
    assert [list(share.as_numpy_iterator()) for share in shares] == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert all(is_presharded(share.map(lambda x: x + 1).shuffle(8).batch(2)) for share in shares)
    whole = Rig(job_name="evaluator", task_index=0).ctx.shard(rows)
    assert list(whole.as_numpy_iterator()) == list(range(8))
    assert not is_presharded(whole)


@pytest.mark.tensorflow
def test_a_dataset_that_each_node_shuffles_differently_is_refused():
    import tensorflow as tf

    tf.random.set_seed(None)  # with one for all, which another test may have set, nodes shuffle alike
    ctx = Rig().ctx
    for chance in (tf.data.Dataset.range(9).shuffle(9), tf.data.Dataset.range(9).shuffle(9).batch(2)):
        with pytest.raises(ConfigError, match=r"^ctx.shard\(dataset\): .* rows would be on several nodes or on none"):
            ctx.shard(chance)
    ctx.shard(tf.data.Dataset.range(9).shuffle(9, seed=1))
    assert len(list(tfos_lab.local_context().shard(tf.data.Dataset.range(9).shuffle(9)))) == 9


@pytest.mark.tensorflow
def test_a_dataset_of_this_nodes_own_files_is_not_divided_again(tmp_path):
    import tensorflow as tf

    from tfos_lab.node.keras.presharded import is_presharded

    for number in range(6):
        (tmp_path / f"part-{number}").write_text("a\nb\n")
    own = Rig().ctx.files(str(tmp_path))
    assert is_presharded(tf.data.TFRecordDataset(own).batch(2))
    assert is_presharded(tf.data.TextLineDataset(own).map(tf.strings.length).batch(2))
    assert is_presharded(tf.data.Dataset.from_tensor_slices(own).interleave(tf.data.TextLineDataset))
    assert not is_presharded(tf.data.TFRecordDataset([*own, str(tmp_path / "part-0")]))
    assert not is_presharded(tf.data.Dataset.from_tensor_slices(["something"]))
