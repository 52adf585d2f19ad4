"""Inference before Spark computes anything: which nodes answer, and what is refused."""

from __future__ import annotations

import pytest

from tests.engine.feed.fakes import FAILED, NAMES, STOPPED, FakeGeneration
from tfos_lab import messages as m
from tfos_lab.engine.feed import inference as inference_module
from tfos_lab.engine.feed.feeding import Feeding
from tfos_lab.engine.feed.inference import Inference
from tfos_lab.errors import ClusterEnded, FeedError, FeedTimeout, NodeFailed


@pytest.fixture
def open_nodes(cluster):
    """Return a function that has the nodes open their endpoints for inferences."""
    inference = Inference(cluster, Feeding(cluster))
    return lambda: inference._open("schema", None)


def test_all_nodes_that_read_answer(cluster, open_nodes):
    assert open_nodes() == {1: ["node 1"], 2: ["node 2"]}
    assert len(cluster.generation.sent_to(1, m.InferenceOpen)) == 1


def test_nodes_that_are_open_are_not_opened_again(cluster, open_nodes):
    assert open_nodes() == open_nodes()
    assert len(cluster.generation.sent_to(1, m.InferenceOpen)) == 1


def test_nodes_that_do_not_open_time_out(cluster, open_nodes, monkeypatch):
    monkeypatch.setattr(inference_module, "_OPEN_TIMEOUT_S", 0.01)
    cluster.generation.opens = False
    with pytest.raises(FeedTimeout, match=r"within 0.01 s"):
        open_nodes()


def test_a_node_that_fails_meanwhile_is_the_cause(cluster, open_nodes):
    cluster.generation.opens = False
    cluster.generation.state = FAILED
    with pytest.raises(NodeFailed):
        open_nodes()


def test_nodes_that_never_show_whether_they_read_time_out(cluster, open_nodes, monkeypatch):
    monkeypatch.setattr(inference_module, "_DECIDE_TIMEOUT_S", 0.01)
    cluster.generation = FakeGeneration(lock_step=False)
    with pytest.raises(FeedTimeout, match="neither asked for rows nor began to serve"):
        open_nodes()


def test_a_cluster_that_ends_before_nodes_are_known_answers_nothing(cluster, open_nodes):
    cluster.generation = FakeGeneration(lock_step=False)
    cluster.generation.state = STOPPED
    with pytest.raises(ClusterEnded, match="answer rows"):
        open_nodes()


def test_nodes_that_all_serve_answer_nothing(cluster, open_nodes):
    cluster.generation = FakeGeneration(lock_step=False)
    for rank in NAMES:
        cluster.generation.receive(m.Progressed(rank=rank, state="serving"))
    with pytest.raises(FeedError, match="none reads rows"):
        open_nodes()
