"""A child watches its agent with a clock of its own."""

from __future__ import annotations

import os
import signal
import socket

import pytest

from tfos_lab.node import agent_watch
from tfos_lab.node.agent_watch import SILENT_S, AgentWatch, peer_of


class World:
    """A clock, the state of the agent, how much of each second it computes, and when it last sent a heartbeat."""

    def __init__(self):
        self.now, self.state, self.load, self.ticks, self.at_s = 100.0, "S", 0.0, 0.0, 100.0

    def monotonic(self):
        return self.now

    def checks(self, watch, times, *, every_s=1.0, beats=False):
        """Let the child look so often; return what it has found."""
        found = []
        for _ in range(times):
            self.now += every_s
            self.ticks += self.load * every_s * os.sysconf("SC_CLK_TCK")
            self.at_s = self.now if beats else self.at_s
            found.append(watch.agent_is_gone())
        return found


@pytest.fixture
def world(monkeypatch):
    world = World()
    monkeypatch.setattr(agent_watch, "time", world)
    monkeypatch.setattr(agent_watch, "state_of", lambda _pid: world.state)
    monkeypatch.setattr(agent_watch, "ticks_of", lambda _pid: int(world.ticks))
    return world


@pytest.fixture
def beating(world, monkeypatch):
    """The same, with an agent that shows its heartbeats."""
    monkeypatch.setattr(agent_watch.LastHeartbeat, "of", lambda _pid: world)
    return world


def test_a_stopped_agent_is_gone_after_some_seconds_and_a_running_one_is_not(world):
    watch = AgentWatch(1)
    assert not any(world.checks(watch, 100))
    world.state = "T"
    assert not any(world.checks(watch, int(SILENT_S) - 1))
    assert world.checks(watch, 1) == [True]


def test_an_agent_that_goes_on_in_time_is_kept(world):
    watch = AgentWatch(1)
    for world.state in "TSTSTS":
        assert not any(world.checks(watch, int(SILENT_S) - 1))


def test_a_pause_of_the_child_itself_is_no_reason_to_leave(world):
    watch = AgentWatch(1)
    world.state = "T"
    assert world.checks(watch, 1, every_s=3600.0) == [False]
    assert world.checks(watch, int(SILENT_S) - 2)[-1]


def test_an_agent_at_a_breakpoint_is_waited_for_and_one_that_has_ended_is_not(world):
    watch = AgentWatch(1)
    world.state = "t"
    assert not any(world.checks(watch, 100))
    world.state = ""
    assert world.checks(watch, 1) == [True]


@pytest.mark.parametrize(("state", "load"), [("R", 1.0), ("R", 0.2), ("S", 0.0), ("T", 0.0)])
def test_an_agent_that_hangs_is_gone_after_some_seconds_without_a_heartbeat(beating, state, load):
    watch = AgentWatch(1)
    assert not any(beating.checks(watch, 50, beats=True))
    beating.state, beating.load = state, load
    assert not any(beating.checks(watch, int(SILENT_S) - 1))
    assert beating.checks(watch, 1) == [True]


@pytest.mark.parametrize(("state", "load"), [("R", 0.0), ("D", 0.0), ("t", 0.0)])
def test_one_that_cannot_run_waits_for_a_disk_or_is_debugged_is_kept(beating, state, load):
    watch = AgentWatch(1)
    beating.state, beating.load = state, load
    assert not any(beating.checks(watch, 100))


def test_one_whose_thread_sends_heartbeats_in_place_of_its_loop_is_kept(beating):
    watch = AgentWatch(1)
    beating.state, beating.load = "R", 1.0
    for _ in range(20):
        assert not any(beating.checks(watch, int(SILENT_S) - 1))
        assert not any(beating.checks(watch, 1, beats=True))


@pytest.mark.parametrize(("state", "number"), [("T", signal.SIGTERM), ("R", signal.SIGKILL), ("Z", None)])
def test_a_stopped_agent_may_go_on_and_send_its_output_and_one_that_hangs_is_killed(
    beating, monkeypatch, state, number
):
    sent = []
    monkeypatch.setattr(agent_watch.os, "kill", lambda pid, sig: sent.append((pid, sig)))
    watch = AgentWatch(1)
    beating.load, beating.state = 1.0, "R" if state == "Z" else state
    found = beating.checks(watch, int(SILENT_S))
    beating.state = state
    found += beating.checks(watch, 3)
    assert found[-1]
    watch.end_agent()
    assert sent == ([(1, number), (1, signal.SIGCONT)] if number else [])


def test_one_that_was_silent_before_it_is_asked_to_end_gets_a_moment(beating):
    beating.now += 100.0
    watch = AgentWatch.of_one_asked_to_end(1)
    assert beating.checks(watch, 2) == [False, True]
    for beating.state, hangs in (("S", True), ("Z", False)):
        beating.now += 1.0
        assert watch.agent_hangs() == hangs


def test_one_that_goes_on_when_it_is_asked_to_end_is_waited_for(beating):
    beating.now += 100.0
    watch = AgentWatch.of_one_asked_to_end(1)
    assert beating.checks(watch, 2, beats=True) == [False, False]
    assert beating.checks(watch, int(SILENT_S)) == [False] * (int(SILENT_S) - 1) + [True]


def test_a_host_that_sleeps_while_an_agent_ends_is_no_reason_to_kill_it(beating):
    watch = AgentWatch.of_one_asked_to_end(1)
    assert beating.checks(watch, 1, every_s=3600.0) == [False]
    assert not any(beating.checks(watch, 10, beats=True))


def test_the_maker_of_a_pair_of_sockets_is_known():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_of(theirs) == os.getpid()
