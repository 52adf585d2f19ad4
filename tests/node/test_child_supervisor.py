"""The supervision of a child, with a fake child: what is sent, reported and signalled, and when."""

from __future__ import annotations

import signal

import pytest

from tests.node.conftest import launch_spec, start_for
from tfos_lab import messages as m
from tfos_lab.node import child_supervisor
from tfos_lab.node.child_supervisor import LAST_GRACE_S, PS_PATIENCE_S, ChildEvents, ChildSupervisor

FINISH = m.Finish(grace_s=10.0)
RETURNED = m.Outcome(kind="returned")


class FakeControl:
    has_unsent = False


class FakeChild:
    """Records what a `ChildLink` is asked to do."""

    def __init__(self):
        self.pid = 0
        self.pipes = []
        self.control = FakeControl()
        self.fork_server = object()
        self.stopping = False
        self.sent = []
        self.signals = []
        self.received = []
        self.outcome = None

    def send(self, message):
        self.sent.append(message)

    def flush(self):
        pass

    def receive(self):
        return self.received

    def receive_outcome(self):
        return self.outcome

    def signal(self, number):
        self.signals.append(number)

    def close(self):
        pass


class FakeLoop:
    def __init__(self):
        self.callbacks = {}

    def watch(self, source, callback):
        self.callbacks[source] = callback

    def watch_writing(self, source, *, wanted):
        pass

    def is_watched(self, source):
        return source in self.callbacks

    def unwatch(self, source):
        self.callbacks.pop(source, None)


class Clock:
    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


class Rig:
    """A supervisor with a fake child and a clock of its own."""

    def __init__(self, monkeypatch, scratch, **spec):
        self.child, self.loop, self.clock = FakeChild(), FakeLoop(), Clock()
        self.progress, self.messages, self.outcomes = [], [], []
        monkeypatch.setattr(child_supervisor, "time", self.clock)
        monkeypatch.setattr(child_supervisor.ChildLink, "spawn", lambda *_: self.child)
        events = ChildEvents(self.progress.append, self.messages.append, self.outcomes.append)
        self.supervisor = ChildSupervisor(launch_spec(**spec), scratch, self.loop, None, events)

    def start(self):
        self.supervisor.start(start_for(print), "/")

    def child_sends(self, *messages):
        self.child.received = messages
        self.loop.callbacks[self.child.control]()

    def fork_server_reports(self, *, pid=0, outcome=None):
        self.child.pid, self.child.outcome = pid, outcome
        self.loop.callbacks[self.child.fork_server]()

    def tick_after(self, seconds):
        self.clock.now += seconds
        self.supervisor.tick(self.clock.now)


@pytest.fixture
def rig(monkeypatch, tmp_path):
    return Rig(monkeypatch, tmp_path)


def test_messages_wait_for_the_start_of_the_child(rig):
    rig.supervisor.send(m.FeedsEnded())
    rig.start()
    rig.supervisor.send(FINISH)
    assert rig.child.sent == [m.FeedsEnded(), FINISH]


def test_the_steps_of_a_start_are_reported_once(rig):
    rig.start()
    rig.fork_server_reports(pid=7)
    rig.fork_server_reports(pid=7)
    assert [(step.state, step.pid) for step in rig.progress] == [("importing", 0), ("starting", 7)]


def test_the_child_s_own_outcome_counts_and_not_that_of_its_process(rig):
    rig.start()
    rig.child_sends(m.FeedStopped(rank=0), m.Ended(rank=0, outcome=RETURNED))
    assert (rig.messages, rig.outcomes) == ([m.FeedStopped(rank=0)], [RETURNED])
    assert not rig.supervisor.exited
    rig.fork_server_reports(pid=7, outcome=m.Outcome(kind="exited"))
    assert rig.supervisor.exited
    assert rig.outcomes == [RETURNED]


def test_the_last_message_of_a_child_that_has_exited_is_read_first(rig):
    rig.start()
    rig.child.received = [m.Ended(rank=0, outcome=RETURNED)]
    rig.fork_server_reports(pid=7, outcome=m.Outcome(kind="exited", exit_code=1))
    assert rig.outcomes == [RETURNED]


def test_a_stop_before_the_start_is_the_end(rig):
    rig.supervisor.stop(grace_s=5.0)
    assert rig.outcomes == [m.Outcome(kind="stopped")]
    assert rig.supervisor.exited


def test_a_stop_kills_after_the_grace_period(rig):
    rig.start()
    rig.supervisor.stop(grace_s=5.0)
    rig.tick_after(4.9)
    assert rig.child.signals == [signal.SIGTERM]
    rig.tick_after(0.2)
    rig.tick_after(10.0)
    assert rig.child.signals == [signal.SIGTERM, signal.SIGKILL]


@pytest.mark.parametrize(("node", "patience_s"), [("worker:0", FINISH.grace_s), ("ps:0", PS_PATIENCE_S)])
def test_a_child_that_goes_on_after_training_is_stopped(monkeypatch, tmp_path, node, patience_s):
    rig = Rig(monkeypatch, tmp_path, node=node)
    rig.start()
    rig.supervisor.finish(FINISH)
    assert rig.child.sent == [FINISH]
    rig.tick_after(patience_s - 0.1)
    assert rig.child.signals == []
    rig.tick_after(0.2)
    assert rig.child.signals == [signal.SIGTERM]
    rig.tick_after(LAST_GRACE_S + 0.1)
    assert rig.child.signals == [signal.SIGTERM, signal.SIGKILL]


def test_a_child_that_has_returned_and_does_not_exit_is_killed(rig):
    rig.start()
    rig.child_sends(m.Ended(rank=0, outcome=RETURNED))
    rig.supervisor.finish(FINISH)
    rig.tick_after(FINISH.grace_s + 0.1)
    assert rig.child.signals == [signal.SIGKILL]


def test_a_child_that_is_killed_unreported_has_no_outcome(rig):
    rig.start()
    rig.supervisor.kill_unreported()
    rig.tick_after(0.1)
    rig.fork_server_reports(pid=7, outcome=m.Outcome(kind="stopped"))
    assert rig.child.signals == [signal.SIGTERM, signal.SIGKILL]
    assert rig.outcomes == []


def test_a_fork_server_that_cannot_start_is_the_outcome(rig, monkeypatch):
    def fail(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(child_supervisor.ChildLink, "spawn", fail)
    rig.start()
    [outcome] = rig.outcomes
    assert (outcome.kind, outcome.error, outcome.message) == (
        "raised",
        "ForkServerUnavailable",
        "no space left on device",
    )
    assert rig.supervisor.exited


# ---- another child in place of one that was lost -------------------------------------------------------------------

KILLED = m.Outcome(kind="exited", exit_code=-9)


@pytest.fixture
def lost(rig):
    """A supervisor whose child served others and was killed."""
    rig.start()
    rig.child_sends(m.Progressed(rank=0, state="serving"))
    rig.fork_server_reports(pid=7, outcome=KILLED)
    assert rig.outcomes == [KILLED]
    return rig


def test_a_child_that_served_is_followed_by_another_if_the_driver_wants_that(lost):
    assert (lost.supervisor.exited, lost.supervisor.is_over) == (True, False)
    lost.supervisor.start_again()
    first, lost.child = lost.child, FakeChild()
    lost.tick_after(0.1)
    assert first.control not in lost.loop.callbacks
    lost.fork_server_reports(pid=8)
    assert [step.pid for step in lost.progress] == [0, 7, 0, 8]
    lost.child_sends(m.Ended(rank=0, outcome=RETURNED))
    assert lost.outcomes == [KILLED, RETURNED]


@pytest.mark.parametrize("end", ["stop", "finish"])
def test_it_is_over_if_the_driver_does_not(lost, end):
    lost.supervisor.stop(0.0) if end == "stop" else lost.supervisor.finish(FINISH)
    lost.tick_after(0.1)
    assert lost.supervisor.is_over
    assert lost.outcomes == [KILLED]


@pytest.mark.parametrize("end", ["stop", "finish"])
def test_an_end_before_the_other_child_is_there_is_the_end(lost, end):
    lost.supervisor.start_again()
    lost.supervisor.stop(0.0) if end == "stop" else lost.supervisor.finish(FINISH)
    lost.tick_after(0.1)
    assert lost.supervisor.is_over
    assert lost.outcomes == [KILLED, m.Outcome(kind="stopped")]
    assert len(lost.progress) == 2


def test_an_agent_that_has_to_leave_reports_no_end_before_the_other_child_is_there(lost):
    lost.supervisor.start_again()
    lost.supervisor.kill_unreported()
    lost.tick_after(0.1)
    assert lost.supervisor.is_over
    assert lost.outcomes == [KILLED]


def test_a_child_that_has_reported_its_end_and_still_runs_is_killed_first(rig):
    rig.start()
    rig.child_sends(m.Progressed(rank=0, state="serving"), m.Ended(rank=0, outcome=m.Outcome(kind="raised")))
    rig.supervisor.start_again()
    assert rig.child.signals == [signal.SIGKILL]
    rig.tick_after(0.1)
    assert len(rig.progress) == 1
    rig.fork_server_reports(pid=7, outcome=KILLED)
    rig.tick_after(0.1)
    assert len(rig.progress) == 3
    assert len(rig.outcomes) == 1


def test_a_child_that_does_not_serve_is_followed_by_no_other(rig):
    rig.start()
    rig.fork_server_reports(pid=7, outcome=KILLED)
    rig.supervisor.start_again()
    rig.tick_after(0.1)
    assert rig.supervisor.is_over
