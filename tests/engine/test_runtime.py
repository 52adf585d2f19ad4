"""The runtime of a cluster, with nodes that the test plays: launch, failure, wait and stop."""

from __future__ import annotations

import pytest

from tests.support.fake_nodes import identity_of, in_background, until
from tfos_lab.core import cluster_records
from tfos_lab.engine import generations, runtime
from tfos_lab.engine.record.format import decode
from tfos_lab.engine.state import cluster_state
from tfos_lab.errors import ClusterEnded, LaunchFailed, NodeFailed, ReservationTimeout, WaitTimeout

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    """Wait milliseconds where people would wait seconds."""
    monkeypatch.setattr(runtime, "LAST_ERRORS_S", 0.05)
    monkeypatch.setattr(runtime, "WAIT_STEP_S", 0.01)


@pytest.fixture
def _given_up_soon(monkeypatch):
    """Give nodes up that do not go after 0.1 s; others need longer to go where many processes run."""
    monkeypatch.setattr(generations, "STOP_EXTRA_S", 0.1)


# ---- launch ---------------------------------------------------------------------------------------------------------


def test_a_runtime_that_is_not_launched_is_whole(start, nodes):
    cluster = start(launch=False)
    assert (cluster.state, [node.state for node in cluster.nodes]) == ("launching", ["waiting", "waiting"])
    assert cluster.generation.launcher is nodes.launcher
    assert nodes.launcher.calls == []
    assert cluster_records.find(cluster.id).state == "launching"


def test_all_nodes_are_started_once_all_have_reserved(start, nodes):
    cluster = start()
    cluster.wait_until_running()
    assert [node.state for node in cluster.nodes] == ["running", "running"]
    first, *_ = [message for _, message in nodes.listener.sent if type(message).__name__ == "Start"]
    assert first.cluster_spec == {"chief": ["fake:0"], "worker": ["fake:1"]}
    assert first.log_dir == str(cluster.run_dir / "events")
    assert first.output_dir == str(cluster.run_dir / "output")
    assert first.backup_dir == ""
    assert {"launched", "reserved", "released", "running"} <= set(cluster.history.timings)


def test_nodes_that_do_not_come_are_named_and_the_others_stopped(start, nodes):
    nodes.missing.add(1)
    cluster = start()
    until(lambda: cluster.nodes[0].state == "reserved")
    with pytest.raises(ReservationTimeout) as caught:
        cluster.wait_until_running(timeout_s=0.02)
    assert (caught.value.reserved, caught.value.missing, caught.value.hint) == (1, ["worker:0"], "a hint")
    assert cluster.state == "stopped"


@pytest.mark.usefixtures("_given_up_soon")
def test_nodes_that_reserve_and_never_run_are_named(start, nodes):
    nodes.deaf.add(0)
    cluster = start(grace_s=0.0)
    until(lambda: cluster.nodes[1].state == "running")
    with pytest.raises(WaitTimeout) as caught:
        cluster.wait_until_running(timeout_s=0.02)
    assert caught.value.still_running == ["chief:0"]


def test_a_launch_that_fails_fails_the_cluster_with_its_own_error(start, nodes):
    nodes.launch_errors = [LaunchFailed(reason="no room")]
    cluster = start(launch=False)
    with pytest.raises(LaunchFailed, match="no room"):
        cluster.launch()
    assert cluster.state == "failed"
    assert cluster.view().reason == "no room"
    with pytest.raises(LaunchFailed, match="no room"):
        cluster.wait(timeout_s=60)


def test_what_the_launcher_reports_later_ends_the_nodes(start, nodes):
    cluster = start()
    cluster.wait_until_running()
    nodes.launcher.plan.fail(LaunchFailed(reason="Spark took the executors back"), "taken back")
    with pytest.raises(LaunchFailed, match="took the executors back"):
        cluster.wait(timeout_s=60)


def test_an_executor_that_an_agent_has_seen_end_is_the_launcher_s_matter(start, nodes):
    from tfos_lab import messages as m

    cluster = start()
    cluster.wait_until_running()
    nodes.send(m.ExecutorGone(rank=1))
    until(lambda: "on_executor_end e1" in nodes.launcher.calls)


def test_a_lost_executor_takes_its_nodes_along(start, nodes):
    cluster = start()
    cluster.wait_until_running()
    assert nodes.launcher.plan.executors() == {"e0", "e1"}
    nodes.launcher.plan.lose_executor("e1", "its host is gone")
    with pytest.raises(NodeFailed) as caught:
        cluster.wait(timeout_s=60)
    assert (caught.value.node, caught.value.kind) == ("worker:0", "Lost")


# ---- wait -----------------------------------------------------------------------------------------------------------


def test_waiting_gives_what_the_nodes_returned(start, nodes):
    cluster = start()
    cluster.wait_until_running()
    nodes.end(0, 21)
    nodes.end(1, {"a": [1]})
    assert dict(cluster.wait(timeout_s=60)) == {"chief:0": 21, "worker:0": {"a": [1]}}
    assert cluster.state == "done"
    assert nodes.listener.closed
    assert nodes.launcher.calls == ["launch", "run_here", "close"]


def test_waiting_in_vain_names_the_nodes_and_leaves_them_running(start, nodes):
    cluster = start()
    cluster.wait_until_running()
    nodes.end(0)
    until(lambda: cluster.nodes[0].state == "done")
    with pytest.raises(WaitTimeout) as caught:
        cluster.wait(timeout_s=0.02)
    assert caught.value.still_running == ["worker:0"]
    assert cluster.state == "running"


def test_a_failed_node_is_raised_with_its_log_and_the_others_are_stopped(start, nodes, monkeypatch):
    from tfos_lab import messages as m

    cluster = start()
    monkeypatch.setattr(runtime, "LAST_ERRORS_S", 60.0)  # the others go in any case
    cluster.wait_until_running()
    nodes.send(m.Logs(rank=1, sequence=0, records=[m.LogRecord(0.0, "stdout", b"about to fail\n")]))
    nodes.fail(1, "LookupError", "no such label")
    with pytest.raises(NodeFailed) as caught:
        cluster.wait(timeout_s=60)
    error = caught.value
    assert (error.node, error.kind, error.message) == ("worker:0", "LookupError", "no such label")
    assert error.log_tail == "about to fail"
    assert [node.state for node in cluster.nodes] == ["stopped", "failed"]


def test_a_failure_is_raised_though_another_node_does_not_go(start, nodes):
    cluster = start(grace_s=0.0)
    cluster.wait_until_running()
    nodes.deaf.add(0)
    nodes.fail(1)
    with pytest.raises(NodeFailed):
        cluster.wait(timeout_s=60)
    assert cluster.state == "failed"


def test_a_stopped_cluster_has_no_results_to_wait_for(start):
    cluster = start()
    cluster.wait_until_running()
    cluster.stop()
    with pytest.raises(ClusterEnded):
        cluster.wait(timeout_s=60)


# ---- stop -----------------------------------------------------------------------------------------------------------


def test_stopping_twice_stops_once(start, nodes):
    cluster = start()
    cluster.wait_until_running()
    cluster.stop()
    sent = len(nodes.listener.sent)
    cluster.stop()
    assert cluster.state == "stopped"
    assert len(nodes.listener.sent) == sent
    states = [event.state for event in cluster.history.events if type(event).__name__ == "StateChanged"]
    assert states == ["reserving", "starting", "running", "stopping", "stopped"]


def test_a_cluster_that_was_never_launched_can_be_stopped(start, nodes):
    cluster = start(launch=False)
    cluster.stop()
    assert cluster.state == "stopped"
    assert nodes.listener.closed
    assert decode((cluster.run_dir / "run.json").read_bytes()).outcome == "stopped"


def test_a_node_that_does_not_go_is_given_up(start, nodes, caplog, monkeypatch):
    monkeypatch.setattr(generations, "STOP_EXTRA_S", 0.4)
    monkeypatch.setattr(cluster_state, "LOST_AFTER_S", 600.0)  # with this grace, it ends for no other reason
    cluster = start(grace_s=60.0)
    cluster.wait_until_running()
    nodes.deaf.update((0, 1))
    cluster.stop(grace_s=0.0)
    assert cluster.state == "stopped"
    assert f"cluster {cluster.id} did not end within 0 s" in caplog.text
    until(lambda: nodes.listener.closed)


def test_a_stop_wakes_who_waits(start):
    cluster = start()
    cluster.wait_until_running()
    raised = []

    def wait():
        try:
            cluster.wait()
        except ClusterEnded as error:
            raised.append(error)

    waiting = in_background(wait)
    cluster.stop()
    waiting.join(60)
    assert len(raised) == 1


def test_a_stop_after_the_end_changes_nothing(start, nodes):
    cluster = start(cluster_size=1)
    cluster.wait_until_running()
    nodes.end(0, "kept")
    cluster.wait(timeout_s=60)
    cluster.stop()
    assert (cluster.state, cluster.results["chief:0"]) == ("done", "kept")


def test_nodes_that_start_when_no_more_rows_come_are_told(start, nodes):
    nodes.missing = {0, 1}
    cluster = start()
    cluster.feeding.end()
    assert nodes.listener.sent == []
    for rank in range(2):
        nodes.reserve(rank)
    for rank in range(2):
        until(lambda rank=rank: nodes.listener.sent_to(identity_of(rank))[:2] == ["Start", "FeedsEnded"])


def test_closing_ends_it_for_other_processes_too(start):
    cluster = start()
    cluster.wait_until_running()
    cluster.close()
    cluster.close()
    assert cluster.state == "stopped"
    assert cluster_records.find(cluster.id) is None


# ---- notes ----------------------------------------------------------------------------------------------------------


def test_a_chief_that_saves_where_nobody_finds_it_is_noted(start, nodes, tmp_path):
    from tfos_lab import messages as m

    cluster = start()
    cluster.wait_until_running()
    nodes.send(m.SavesTo(rank=0, path="/data/model", mark=str(tmp_path / "not-there")))
    until(lambda: cluster.view().notes)
    [note] = cluster.view().notes
    assert note.startswith(
        "chief:0 saves to /data/model on fake, where this machine does not see it: use ctx.save_model"
    )
    (tmp_path / "mark").touch()
    nodes.send(m.SavesTo(rank=0, path="/data/model", mark=str(tmp_path / "mark")))
    nodes.end(0)
    nodes.end(1)
    cluster.wait(timeout_s=60)
    assert len(cluster.view().notes) == 1
