"""Restarts after a lost node, with nodes that the test plays; tests/misfortune/test_restarts.py has real ones."""

from __future__ import annotations

import logging

import pytest

from tests.support.fake_nodes import identity_of, until
from tfos_lab import messages as m
from tfos_lab.engine import restarts, runtime
from tfos_lab.engine.state.events import NodeStartedAgain
from tfos_lab.errors import ClusterEnded, ConfigError, LaunchFailed, NodeFailed, NotEnoughSlots

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    """Wait milliseconds where people would wait seconds."""
    monkeypatch.setattr(runtime, "LAST_ERRORS_S", 0.05)
    monkeypatch.setattr(runtime, "WAIT_STEP_S", 0.01)
    monkeypatch.setattr(restarts, "_SLOTS_POLL_S", 0.01)


def no_slots():
    return NotEnoughSlots(wanted=2, free=1, total=1)


def running(cluster, number):
    """Wait until the nodes of a generation run."""
    until(lambda: cluster.generation.number == number and cluster.state == "running")


def test_a_killed_node_brings_another_generation(start, nodes):
    cluster = start(restarts=1)
    running(cluster, 0)
    nodes.kill(1)
    running(cluster, 1)
    until(lambda: [listener.closed for listener in nodes.listeners] == [True, False])
    until(lambda: "close" in nodes.launchers[0].calls)
    nodes.end(0, "second")
    nodes.end(1)
    assert cluster.wait(timeout_s=60)["chief:0"] == "second"
    [note] = cluster.view().notes
    assert note.startswith("restart 1 of 1, as worker:0: Exited: the process was killed")
    [(lost_s, again_s)] = cluster.view().restarts
    assert lost_s < again_s


def test_a_worker_alone_is_started_again_with_a_note_and_counts_as_a_restart(start, nodes):
    cluster = start(restarts=2, cluster_size=3, num_ps=1)
    running(cluster, 0)
    nodes.send(m.Progressed(rank=2, state="serving"))
    nodes.kill(2)
    until(lambda: cluster.view().notes)
    nodes.send(m.Progressed(rank=2, state="serving"))
    nodes.kill(0)
    running(cluster, 1)
    nodes.end(1)
    nodes.end(2)
    cluster.wait(timeout_s=60)
    alone, whole = cluster.view().notes
    assert alone.startswith("restart 1 of 2, of worker:0 alone, while the others go on: Exited: the process was killed")
    assert whole.startswith("restart 2 of 2, as ps:0: Exited: the process was killed")
    assert [event.node for event in cluster.history.events if isinstance(event, NodeStartedAgain)] == ["worker:0"]
    assert len(cluster.view().restarts) == 1


def test_the_nodes_of_another_generation_find_their_backup(start, nodes):
    cluster = start(restarts=1)
    running(cluster, 0)
    nodes.kill(1)
    running(cluster, 1)
    [first, *_], [second, *_] = (
        [message for _, message in listener.sent if type(message).__name__ == "Start"] for listener in nodes.listeners
    )
    assert (first.restart, second.restart) == (0, 1)
    assert first.backup_dir == second.backup_dir == f"{cluster.run_dir}/backup-{cluster.id}"


def test_a_function_that_raises_is_no_reason_to_start_again(start, nodes):
    cluster = start(restarts=3)
    running(cluster, 0)
    nodes.fail(1)
    with pytest.raises(NodeFailed):
        cluster.wait(timeout_s=60)
    assert len(nodes.listeners) == 1


def test_the_last_generation_fails_as_ever(start, nodes):
    cluster = start(restarts=1)
    running(cluster, 0)
    nodes.kill(1)
    running(cluster, 1)
    nodes.kill(0)
    with pytest.raises(NodeFailed) as caught:
        cluster.wait(timeout_s=60)
    assert caught.value.node == "chief:0"
    assert cluster.state == "failed"


def test_slots_are_waited_for(start, nodes):
    nodes.launch_errors = [None, no_slots(), no_slots()]
    cluster = start(restarts=1)
    running(cluster, 0)
    nodes.kill(1)
    running(cluster, 1)
    assert nodes.launcher.calls.count("launch") == 3


def test_slots_that_never_come_end_the_cluster_with_that_error(start, nodes, caplog):
    nodes.launch_errors = [None, no_slots()]
    cluster = start(restarts=1, reservation_timeout_s=0.0)
    running_or_later = ("running", "restarting", "failed")
    until(lambda: cluster.state in running_or_later)
    with caplog.at_level(logging.CRITICAL, "tfos_lab.engine.restarts"):
        nodes.kill(1)
        with pytest.raises(NotEnoughSlots):
            cluster.wait(timeout_s=60)


def test_a_restart_that_cannot_be_launched_ends_the_cluster_with_its_error(start, nodes, caplog):
    nodes.launch_errors = [None, LaunchFailed(reason="no fork server")]
    cluster = start(restarts=1)
    running(cluster, 0)
    nodes.kill(1)
    with pytest.raises(LaunchFailed, match="no fork server"):
        cluster.wait(timeout_s=60)
    assert "restart 1 of cluster" in caplog.text


def test_a_restart_that_cannot_be_made_fails_the_cluster(start, nodes, monkeypatch):
    first = nodes.open_listener
    monkeypatch.setattr(nodes, "open_listener", lambda *hosts: no_port() if nodes.listeners else first(*hosts))
    cluster = start(restarts=1)
    running(cluster, 0)
    nodes.kill(1)
    with pytest.raises(NodeFailed, match="the process was killed"):
        cluster.wait(timeout_s=60)
    assert cluster.state == "failed"
    assert any("restart 1 of 1 failed: none of these ports is free" in note for note in cluster.view().notes)


def no_port():
    raise ConfigError(["none of these ports is free"])


def test_a_cluster_that_is_stopped_while_it_restarts_stays_stopped(start, nodes):
    nodes.launch_errors = [None, *(no_slots() for _ in range(1000))]
    cluster = start(restarts=2)
    running(cluster, 0)
    nodes.kill(1)
    until(lambda: len(nodes.launchers) == 2)
    cluster.stop(grace_s=0.0)
    assert cluster.state == "stopped"
    with pytest.raises(ClusterEnded):
        cluster.wait(timeout_s=60)


def test_an_agent_of_an_earlier_generation_is_sent_away(start, nodes):
    from tfos_lab import messages as m

    cluster = start(restarts=1)
    running(cluster, 0)
    nodes.kill(1)
    running(cluster, 1)
    nodes.listener.deliver(b"old/1", m.Heartbeat(rank=1))
    until(lambda: nodes.listener.sent_to(b"old/1") == ["Stop", "Shutdown"])
    assert [node.state for node in cluster.nodes] == ["running", "running"]
    assert "Stop" not in nodes.listener.sent_to(identity_of(1))
