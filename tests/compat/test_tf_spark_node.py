"""`TFSparkNode.TFNodeContext`, with and without a cluster; and what the module has no more."""

from __future__ import annotations

import pytest

from tests.compat.support import FakeContext
from tfos_lab.compat import TFNode, TFSparkNode
from tfos_lab.compat.node_manager import NodeManager

SPEC = {"ps": ["a:1"], "chief": ["b:1"], "evaluator": ["c:1"], "worker": ["d:1", "e:1"]}


def test_a_context_can_be_made_without_a_cluster():
    ctx = TFSparkNode.TFNodeContext()
    assert (ctx.executor_id, ctx.worker_num, ctx.job_name, ctx.task_index) == (0, 0, "", 0)
    assert (ctx.cluster_spec, ctx.num_workers, ctx.defaultFS, ctx.working_dir) == ({}, 0, "file://", ".")
    assert (ctx.mgr, ctx.tmp_socket) == (None, None)
    with pytest.raises(AttributeError, match="has no attribute 'dataset'"):
        _ = ctx.dataset


def test_a_context_counts_the_nodes_that_train():
    ctx = TFSparkNode.TFNodeContext(3, "worker", 0, SPEC, "hdfs://nn", "/here")
    assert (ctx.executor_id, ctx.worker_num, ctx.num_workers) == (3, 3, 3)
    assert ctx.absolute_path("/data") == "hdfs://nn/data"


def test_a_context_has_a_feed():
    ctx = TFSparkNode.TFNodeContext(mgr=NodeManager(FakeContext({"input": [1]}), ["input", "output"]))
    feed = ctx.get_data_feed(input_mapping={"x": "tensor"})
    assert isinstance(feed, TFNode.DataFeed)
    assert (feed.train_mode, feed.input_tensors) == (True, ["tensor"])


def test_on_a_node_a_context_has_what_the_native_one_has():
    ctx = TFSparkNode.TFNodeContext()
    ctx._native = FakeContext(is_chief=True)
    assert ctx.is_chief
    with pytest.raises(AttributeError):
        _ = ctx.nothing


@pytest.mark.parametrize("name", ["start_cluster_server", "export_saved_model"])
def test_void_helpers_say_so(name):
    arguments = [None, "", "", {}] if name == "export_saved_model" else []
    with pytest.raises(Exception, match="DEPRECATED"):
        getattr(TFSparkNode.TFNodeContext(), name)(*arguments)


def test_a_port_is_released_once(caplog):
    ctx = TFSparkNode.TFNodeContext()
    ctx.release_port()
    assert "nothing to release" in caplog.text


@pytest.mark.parametrize("name", ["run", "train", "inference", "shutdown", "_get_manager", "TFSparkNode"])
def test_internals_are_gone_with_a_sentence(name):
    with pytest.raises(AttributeError, match=f"TFSparkNode.{name} was TensorFlowOnSpark's way .* TFCluster.run"):
        getattr(TFSparkNode, name)


def test_other_names_are_missing_as_usual():
    assert not hasattr(TFSparkNode, "nothing")


def test_on_a_node_own_datasets_are_evened_out_by_the_native_one():
    ctx = TFSparkNode.TFNodeContext()
    assert ctx._lock_step is None
    ctx._native = FakeContext(_lock_step="the node's")
    assert ctx._lock_step == "the node's"
