"""Independent runs, whose nodes are played by the test."""

from __future__ import annotations

import contextlib
import signal
import threading
import time

import pytest

from tests.support.fake_nodes import FakeNodes, in_background, make_runtime, until
from tfos_lab import messages as m
from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.launchers import LAUNCHERS
from tfos_lab.engine.launchers.capacity import Room
from tfos_lab.engine.parallel import tries
from tfos_lab.engine.parallel.policy import RunPolicy
from tfos_lab.engine.parallel.runner import Runner
from tfos_lab.engine.parallel.runs import ParallelRuns
from tfos_lab.engine.parallel.slots import MachineSlots
from tfos_lab.engine.parallel.state import ParallelState
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.engine.state.events import LogText, MetricsReported
from tfos_lab.errors import ConfigError, ExecutorMismatch, FeedError, NotEnoughSlots, ParallelInterrupted

pytestmark = pytest.mark.leaves_nothing


class Played:
    """Runs whose nodes a test plays: ``tries`` are the nodes of each try, in the order in which they began."""

    def __init__(
        self, folder, count, *, retries=0, slots=2, timeout_s=None, launcher="local", launch_errors=None, size=1,
        policy=None, feed=None,
    ):  # fmt: skip
        self.folder = folder
        self.size = size
        self.tries = []
        self.launch_errors = launch_errors or {}
        state = ParallelState([str(index) for index in range(count)], retries)
        for entry in state.entries:
            entry.slots = size
        config = ClusterConfig(name="played", grace_s=0.5)
        (folder / "played").mkdir()
        self.runs = ParallelRuns(
            config,
            LAUNCHERS[launcher],
            state,
            MachineSlots(slots, None, room=Room(cores=8)),
            RunDir(folder / "played"),
            call=(print, None),
        )
        self.runner = Runner(self.runs, self, timeout_s=timeout_s, policy=policy, feed=feed)
        self.results = self.error = None

    def make(self, index, run_dir, extra_env):
        nodes = FakeNodes()
        nodes.launch_errors = self.launch_errors.pop(index, [])
        runtime = make_runtime(self.folder, nodes, cluster_size=self.size, name=f"run{index}")
        self.tries.append((index, nodes))
        return runtime

    def nodes(self, index, number=1):
        """Return the nodes of a run's try, once it runs."""
        found = until(lambda: [nodes for one, nodes in self.tries if one == index][number - 1 :])[0]
        until(lambda: self.state_of(index) == "running" or found.launch_errors)
        return found

    def state_of(self, index):
        return self.runs.view().nodes[index].state

    def begin(self):
        self._thread = in_background(self._run)
        return self

    def _run(self):
        try:
            self.results = self.runner.run()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def finish(self):
        self._thread.join(20)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.results


@pytest.fixture
def play(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))

    def play(count, *, begin=True, **options):
        played = Played(tmp_path, count, **options)
        return played.begin() if begin else played

    return play


class DeafSlots(MachineSlots):
    """Slots that take a second to count and swallow an interrupt meanwhile, as a call to Spark may."""

    def __init__(self):
        super().__init__(1, None, room=Room(cores=8))
        self.asked = threading.Event()

    def free(self, *_):
        self.asked.set()
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(0.01)
        return 0


def test_an_interrupt_during_a_call_to_spark_is_not_lost(play):
    played = play(1, begin=False)
    slots = played.runs.slots = DeafSlots()

    def interrupt():
        assert slots.asked.wait(20)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    in_background(interrupt)
    with pytest.raises(ParallelInterrupted) as caught:
        played.runner.run()
    assert caught.value.results.states == ["stopped"]


def test_an_error_on_the_thread_that_begins_runs_is_raised(play):
    played = play(1, begin=False)
    played.runs.make_part = lambda _index: 1 / 0
    with pytest.raises(ZeroDivisionError):
        played.runner.run()


def test_runs_begin_as_slots_become_free(play):
    played = play(3)
    played.nodes(0), played.nodes(1)
    assert played.state_of(2) == "waiting"
    assert played.runs.view().state == "running"
    played.nodes(1).end(0, "b")
    played.nodes(2).end(0, "c")
    played.nodes(0).end(0, "a")
    assert list(played.finish()) == ["a", "b", "c"]
    view = played.runs.view()
    assert (view.state, view.reason, view.ended_s is not None) == ("done", "", True)


def test_a_failure_ends_no_other_run(play):
    played = play(2)
    played.nodes(0).fail(0, "KeyError", "'x'")
    until(lambda: played.runs.view().nodes[0].detail == "KeyError: 'x'")
    assert played.state_of(0) == "failed"
    played.nodes(1).end(0, 7)
    results = played.finish()
    assert results[1] == 7
    assert (results.failures[0].kind, results.failures[0].error, results.failures[0].run) == ("raised", "KeyError", 0)
    assert played.runs.view().reason == "1 of 2 runs failed"


def test_only_the_failed_run_is_tried_again(play):
    played = play(2, retries=1)
    played.nodes(0).kill(0)
    played.nodes(1).end(0, "b")
    played.nodes(0, 2).end(0, "a")
    results = played.finish()
    assert list(results) == ["a", "b"]
    assert sorted(index for index, _ in played.tries) == [0, 0, 1]


def test_a_killed_process_counts_as_lost(play):
    played = play(1)
    played.nodes(0).kill(0)
    assert played.finish().failures[0].kind == "lost"


def test_a_run_that_found_no_slot_is_begun_again_and_not_counted(play):
    played = play(1, launch_errors={0: [NotEnoughSlots(wanted=1, free=0, total=4)]})
    played.nodes(0, 2).end(0, "a")
    results = played.finish()
    assert list(results) == ["a"]
    assert list(results.table()["tries"]) == [1]


def test_what_would_meet_every_run_is_raised_before_the_others_begin(play):
    error = ExecutorMismatch(problems={"host": "lacks tensorflow"})
    played = play(3, launcher="spark", launch_errors={0: [error]})
    with pytest.raises(ExecutorMismatch):
        played.finish()
    assert len(played.tries) == 1
    assert played.runs.view().state == "stopped"


def test_a_try_that_is_not_recorded_yet_and_had_no_slots_proves_nothing(play, monkeypatch):
    record = Runner._record
    monkeypatch.setattr(Runner, "_record", lambda *args: (time.sleep(0.3), record(*args)))
    test_what_would_meet_every_run_is_raised_before_the_others_begin(play)


def test_on_other_hosts_the_first_run_goes_ahead(play):
    played = play(2, launcher="spark")
    played.nodes(0), played.nodes(1)
    assert [index for index, _ in played.tries] == [0, 1]
    played.nodes(0).end(0)
    played.nodes(1).end(0)
    played.finish()


def test_without_spark_the_runs_that_wait_are_lost(play, monkeypatch):
    played = play(2, slots=1)
    nodes = played.nodes(0)
    monkeypatch.setattr(played.runs.slots, "free", lambda *_: 1 / 0)
    until(lambda: played.state_of(1) == "lost")
    nodes.end(0, "a")
    results = played.finish()
    assert results[0] == "a"
    assert results.failures[1].message == "Spark does not answer any more: ZeroDivisionError: division by zero"


def test_what_runs_report_comes_under_their_names(play):
    played = play(2)
    nodes, seen = played.nodes(1), []
    with played.runs.bus.subscribe() as events:
        nodes.send(m.Logs(rank=0, sequence=0, records=[m.LogRecord(1.0, "stdout", b"hello\n")]))
        nodes.send(m.Reported(rank=0, step=3, total_steps=9, metrics={"loss": 0.5}, time_s=1.0))
        until(lambda: seen.extend(events.take()) or any(isinstance(event, MetricsReported) for event in seen))
    assert [event.node for event in seen if isinstance(event, LogText | MetricsReported)] == ["run 1", "run 1"]
    assert played.runs.view().nodes[1].step == 3
    nodes.end(0)
    played.nodes(0).end(0)
    played.finish()
    assert played.runs.reports_after(0)[0][0].metrics == {"loss": 0.5}


def test_a_stop_from_elsewhere_ends_all(play):
    played = play(3)
    played.nodes(0).end(0, "a")
    played.nodes(1), played.nodes(2)
    threading.Thread(target=played.runs.stop, name="test-stop").start()
    with pytest.raises(ParallelInterrupted) as caught:
        played.finish()
    assert caught.value.results.states == ["done", "stopped", "stopped"]
    assert played.runs.view().state == "stopped"


def test_a_try_that_takes_too_long_has_failed(play):
    played = play(1, timeout_s=0.2)
    failure = played.finish().failures[0]
    assert failure.kind == "timed out"
    assert failure.message == "it was stopped, as it had not returned after timeout_s=0.2"


# ---- clusters, and runs that are cut --------------------------------------------------------------------------------


def test_a_run_may_be_a_cluster_that_takes_several_slots(play):
    played = play(2, slots=3, size=2)
    nodes = played.nodes(0)
    nodes.send(m.Reported(rank=1, step=3, total_steps=None, metrics={"loss": 0.5}, time_s=1.0))
    assert played.state_of(1) == "waiting"
    nodes.end(1, "worker")
    assert played.state_of(0) == "running", "until all nodes have returned"
    nodes.end(0, "chief")
    played.nodes(1).fail(1, "KeyError", "'x'")
    results = played.finish()
    assert results[0] == "chief"
    assert (results.failures[1].error, results.failures[1].message) == ("KeyError", "worker:0: 'x'")
    assert played.runs.reports_after(0)[0] == [], "the table shows what the leading node reports"


class Cutting(RunPolicy):
    """Cuts runs that report a loss above 1, and takes none that returns "no" for a proof that none can succeed."""

    def __init__(self):
        self.seen = []

    def prepare(self, entry):
        self.seen.append(("begins", entry.index))

    def reported(self, entry, order, report):
        self.seen.append((entry.index, order, report.metrics["loss"]))
        return report.metrics["loss"] > 1

    def returned(self, entry, value):
        return ConfigError(["it makes no sense"]) if value == "no" else None

    def ended(self, entry, state):
        self.seen.append((entry.index, state.value))


def report(rank, loss):
    return m.Reported(rank=rank, step=1, total_steps=None, metrics={"loss": loss}, time_s=1.0)


def test_a_run_that_is_cut_is_stopped_and_its_slots_are_free(play):
    policy = Cutting()
    played = play(2, slots=2, size=2, policy=policy)
    nodes = played.nodes(0)
    nodes.send(report(1, 0.5))
    nodes.send(report(0, 2.0))
    other = played.nodes(1)
    other.end(0, "a"), other.end(1)
    results = played.finish()
    assert results.states == ["stopped early", "done"]
    assert list(results) == [None, "a"]
    assert played.runs.view().state == "done"
    assert policy.seen == [*(("begins", 0), (0, 1, 0.5), (0, 0, 2.0), (0, "stopped early"), ("begins", 1), (1, "done"))]


def test_what_one_proves_ends_all(play):
    played = play(3, slots=2, policy=Cutting())
    played.nodes(1)
    played.nodes(0).end(0, "no")
    with pytest.raises(ConfigError, match="it makes no sense"):
        played.finish()
    assert [node.state.value for node in played.runs.view().nodes] == ["done", "stopped", "stopped"]


def test_runs_are_fed_while_what_they_report_is_heard(play):
    fed, is_fed = [], threading.Event()

    def feed(cluster):
        fed.append(cluster.name)
        assert is_fed.wait(60)

    policy = Cutting()
    played = play(1, feed=feed, policy=policy)
    nodes = played.nodes(0)
    nodes.send(report(0, 0.5))
    until(lambda: (0, 0, 0.5) in policy.seen)
    is_fed.set()
    nodes.end(0, "a")
    assert list(played.finish()) == ["a"]
    assert fed == ["run0"]


def test_a_function_that_has_returned_in_time_is_not_timed_out_while_its_feed_ends(play):
    stored = threading.Event()
    played = play(1, timeout_s=0.2, feed=lambda _cluster: stored.wait(60))
    played.nodes(0).end(0, "a")
    time.sleep(0.5)
    stored.set()
    assert list(played.finish()) == ["a"]


def test_rows_that_no_run_can_be_fed_end_all(play):
    def feed(cluster):
        raise ConfigError(["data: no column 'x'"])

    played = play(3, slots=1, feed=feed)
    with pytest.raises(ConfigError, match="no column 'x'"):
        played.finish()
    assert len(played.tries) == 1


def test_a_run_is_fed_once_its_node_runs_and_its_end_waits_for_the_feed(play, monkeypatch):
    monkeypatch.setattr(tries, "_JOIN_S", 0.0)  # not for as long, but for the feed
    began, stored, states = threading.Event(), threading.Event(), []

    def feed(cluster):
        states.append(str(cluster.state))
        began.set()
        stored.wait(60)

    played = play(1, feed=feed)
    assert began.wait(60)
    nodes = played.nodes(0)
    nodes.end(0, "a")
    until(lambda: nodes.listener.closed)
    time.sleep(0.3)  # in which a run that does not wait ends
    assert played.runs.view().nodes[0].run.going
    assert played.state_of(0) != "done"
    stored.set()
    assert list(played.finish()) == ["a"]
    assert states == ["running"]


def test_a_feed_that_fails_fails_its_run_and_no_other(play):
    def feed(cluster):
        if cluster.name == "run0":
            raise FeedError(reason="no such column")

    played = play(2, feed=feed)
    until(lambda: played.state_of(0) == "failed")
    played.nodes(1).end(0, 7)
    results = played.finish()
    assert results[1] == 7
    assert (results.failures[0].error, results.failures[0].message) == ("FeedError", "no such column")
