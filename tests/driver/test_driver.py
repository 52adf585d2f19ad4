"""The driver of a cluster whose nodes the test plays: their messages in, and what they are sent; with its restarts.

What real nodes do is in `tests/conformance` and `tests/faults`; here are those that no real node sends, or not so
that a test could tell when.
"""

import re

import pytest

from tests.support.eventually import eventually
from tests.support.fake_nodes import identity_of
from tfos_lab.core import messages as m
from tfos_lab.errors import ClusterEnded, LaunchFailed, NodeFailed, NotEnoughSlots, ReservationTimeout

pytestmark = pytest.mark.leaves_nothing

# README and the guide name these; add to them only what users need.
NAMES = {
    "diagnose", "ended", "events", "id", "inference", "logs", "metrics", "model", "model_path", "name", "nodes",
    "output_dir", "plot", "profile", "report", "results", "run_dir", "shutdown", "stacks", "state", "stop", "story",
    "tensorboard_url", "timings", "train", "view", "wait", "wait_until_running",
}  # fmt: skip


def running(start, **options):
    cluster = start(**options)
    cluster.wait_until_running()
    return cluster


# ---- the handle that users hold -------------------------------------------------------------------------------------


def test_tab_shows_what_users_need_and_nothing_else(start):
    assert {name for name in dir(start(launch=False)) if not name.startswith("_")} == NAMES


def test_it_is_shown_in_a_line_and_ends_with_its_block(start):
    with running(start, name="mnist") as cluster:
        assert repr(cluster) == "<Cluster 'mnist': running, 2/2 nodes, local>"
        with pytest.raises(KeyError, match="no node 'worker:9' in this cluster; there are chief:0, worker:0"):
            cluster.logs("worker:9")
    assert cluster.state == "stopped"
    with pytest.raises(ClusterEnded):
        cluster.wait(timeout=60)


@pytest.mark.parametrize(
    ("which", "sentence"),
    [
        ("missing", "1 of 2 nodes reserved within 0.1 s; missing: worker:0"),
        ("deaf", "2 of 2 nodes reserved within 0.1 s; not running yet: worker:0"),
    ],
)
def test_nodes_that_do_not_reserve_or_run_in_time_are_named(start, nodes, which, sentence):
    setattr(nodes, which, {1})
    cluster = start(start_timeout=0.1)
    with pytest.raises(ReservationTimeout, match=re.escape(sentence)):
        cluster.wait_until_running()
    assert cluster.state == "failed"
    assert sentence in cluster.view().reason


def test_a_driver_that_can_receive_nothing_any_more_fails_the_run_and_says_why(start, nodes):
    cluster = running(start)
    nodes.listener.error = OSError("no descriptors left")
    with pytest.raises(NodeFailed, match="no descriptors left"):
        cluster.wait(timeout=60)
    assert cluster.state == "failed"
    assert nodes.listener.closed


def test_a_shutdown_waits_and_stops_and_may_come_twice(start, nodes):
    cluster = running(start)
    nodes.end(0, "a")
    nodes.end(1)
    cluster.shutdown(timeout=60)
    cluster.shutdown(timeout=60)
    cluster.stop()
    assert (cluster.state, cluster.results["chief:0"]) == ("done", "a")


def test_a_launch_that_fails_fails_the_cluster_with_its_own_error(start, nodes):
    nodes.launch_errors = [LaunchFailed(reason="no room")]
    cluster = start(launch=False)
    with pytest.raises(LaunchFailed, match="no room"):
        cluster.launch()
    assert (cluster.state, cluster.view().reason) == ("failed", "no room")
    with pytest.raises(LaunchFailed, match="no room"):
        cluster.wait(timeout=60)


# ---- what no node sends ---------------------------------------------------------------------------------------------


NOT_SENT = [
    (m.encode(m.FeedReady(rank=1, feed=3, locations=[])), "FeedReady (feed 3 does not exist)"),
    (m.encode(m.Reserve("host", "host:0", 1, "e0", [], rank=0)), "Reserve (of rank 0)"),
    (
        m.encode(m.Activity(m.NodeActivity(cpu=float("nan")), rank=1)),
        "a message that cannot be decoded (Expected `float`",
    ),
    (m.encode(m.Progressed("dancing", rank=1)), "a message that cannot be decoded (Invalid enum value 'dancing'"),
    (m.encode(m.Progressed("stopped", rank=1)), "Progressed (the state stopped"),
    (m.encode(m.Heartbeat(spooled_bytes=-7, rank=1)), "a message that cannot be decoded (Expected `int`"),
    (b"\xc1 nonsense", "a message that cannot be decoded"),
]


@pytest.mark.parametrize(("data", "what"), NOT_SENT, ids=[what for _, what in NOT_SENT])
def test_a_node_that_sends_what_no_node_sends_fails_by_itself(start, nodes, data, what):
    cluster = running(start)
    nodes.listener.post((identity_of(1), data))
    with pytest.raises(NodeFailed) as caught:
        cluster.wait(timeout=60)
    assert (caught.value.node, caught.value.kind) == ("worker:0", "Refused")
    assert caught.value.message.startswith(f"worker:0 sent what no node sends: {what}")
    assert {"Stop", "Shutdown"} <= set(nodes.listener.sent_to(identity_of(1)))
    assert [node.state for node in cluster.nodes] == ["stopped", "failed"]


def test_nothing_more_is_taken_from_a_node_that_was_refused(start, nodes):
    cluster = running(start)
    nodes.deaf.add(1)
    nodes.listener.post((identity_of(1), b"nonsense"))
    nodes.send(m.Reported(5, None, {"loss": 1.0}, 1.0, rank=1))
    nodes.reserve(1)
    nodes.send(m.Logs([m.LogRecord(1.0, "stdout", b"hello\n")], rank=1))
    with pytest.raises(NodeFailed):
        cluster.wait(timeout=60)
    assert (cluster.nodes[1].state, cluster.nodes[1].step) == ("failed", None)
    assert not (cluster.run_dir / "worker-0.log").exists()


def test_a_stranger_with_keys_cannot_end_a_node(start, nodes):
    cluster = running(start)
    for data in (
        b"nonsense",
        m.encode(m.Reserve("h", "h:7", 1, "e7", [], rank=7)),
        m.encode(m.Ended(m.Outcome("no"), rank=1)),
    ):
        nodes.listener.post((b"stranger", data))
    eventually(lambda: nodes.listener.sent_to(b"stranger") == ["Stop", "Shutdown"] * 3)
    nodes.settle()
    assert [node.state for node in cluster.nodes] == ["running", "running"]


def test_a_node_that_is_lost_cannot_reserve_any_more(start, nodes):
    nodes.missing = {1}
    cluster = start(evaluator=True)
    nodes.settle()
    cluster.head.lose(1, "its process has ended")
    cluster.wait_until_running()
    nodes.listener.post((b"late", m.encode(m.Reserve("h", "h:1", 1, "e1", [], rank=1))))
    nodes.settle()
    sent = [nodes.listener.sent_to(agent) for agent in (identity_of(0), b"late")]
    assert sent == [["Start"], ["Stop", "Shutdown"]], "the others are not started once more"


# ---- restarts -------------------------------------------------------------------------------------------------------


def no_slots():
    return NotEnoughSlots(wanted=2, free=1, total=1)


@pytest.mark.parametrize("error", [no_slots(), LaunchFailed(reason="no fork server")], ids=["slots", "launch"])
def test_a_restart_that_finds_no_slots_in_time_or_cannot_be_launched_ends_the_cluster_with_its_error(
    start, nodes, error
):
    nodes.launch_errors = [None, *[error] * 1000]
    cluster = start(restarts=1, start_timeout=1.0)
    eventually(lambda: cluster.state == "running")
    nodes.kill(1)
    with pytest.raises(type(error)):
        cluster.wait(timeout=60)


def test_a_cluster_that_is_stopped_while_it_restarts_stays_stopped(start, nodes):
    nodes.launch_errors = [None, *(no_slots() for _ in range(1000))]
    cluster = running(start, restarts=2)
    nodes.kill(1)
    eventually(lambda: len(nodes.launchers) == 2)
    cluster.stop(grace=0.0)
    assert cluster.state == "stopped"
    with pytest.raises(ClusterEnded):
        cluster.wait(timeout=60)
