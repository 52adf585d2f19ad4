"""Inference before Spark computes anything: which nodes answer, and what is refused."""

from __future__ import annotations

import pytest

from tests.engine.feed.fakes import FAILED, NAMES, STOPPED, FakeGeneration
from tfos_lab import messages as m
from tfos_lab.engine.feed import answering as answering_module
from tfos_lab.engine.feed.answering import AnsweringNodes
from tfos_lab.engine.feed.feeding import Feeding
from tfos_lab.errors import ClusterEnded, FeedError, FeedTimeout, NodeFailed
from tfos_lab.node.feed.inference_task import InferencePlan


@pytest.fixture
def open_nodes(cluster):
    """Return a function that has the nodes open their endpoints for inferences."""
    nodes = AnsweringNodes(cluster, Feeding(cluster))
    return lambda **options: nodes.open(InferencePlan(schema="schema", **options)).locations


def test_all_nodes_that_read_answer(cluster, open_nodes):
    assert open_nodes() == {1: ["node 1"], 2: ["node 2"]}
    assert len(cluster.generation.sent_to(1, m.InferenceOpen)) == 1


def test_nodes_that_are_open_are_not_opened_again(cluster, open_nodes):
    assert open_nodes() == open_nodes()
    assert len(cluster.generation.sent_to(1, m.InferenceOpen)) == 1


def test_nodes_are_told_of_each_queue_and_kind_of_rows(cluster, open_nodes):
    for options in ({}, {"objects": True}, {"queue": "other"}, {"objects": True}):
        assert open_nodes(**options) == {1: ["node 1"], 2: ["node 2"]}
    told = cluster.generation.sent_to(1, m.InferenceOpen)
    assert [(message.queue, message.objects) for message in told] == [
        ("input", False),
        ("input", True),
        ("other", False),
    ]


def test_nodes_that_do_not_open_time_out(cluster, open_nodes, monkeypatch):
    monkeypatch.setattr(answering_module, "_OPEN_TIMEOUT_S", 0.01)
    cluster.generation.opens = False
    with pytest.raises(FeedTimeout, match=r"within 0.01 s"):
        open_nodes()


def test_a_node_that_fails_meanwhile_is_the_cause(cluster, open_nodes):
    cluster.generation.opens = False
    cluster.generation.state = FAILED
    with pytest.raises(NodeFailed):
        open_nodes()


def test_nodes_that_never_show_whether_they_read_time_out(cluster, open_nodes):
    cluster.generation = FakeGeneration(lock_step=False)
    with pytest.raises(FeedTimeout, match="neither asked for rows nor began to serve"):
        open_nodes(timeout_s=0.01)


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
