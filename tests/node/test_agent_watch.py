"""A child watches its agent with a clock of its own."""

from __future__ import annotations

import os
import socket

import pytest

from tfos_lab.node import agent_watch
from tfos_lab.node.agent_watch import STOPPED_S, AgentWatch, peer_of


class World:
    """A clock, and the state of the agent."""

    def __init__(self):
        self.now, self.state = 100.0, "S"

    def monotonic(self):
        return self.now

    def checks(self, watch, times, *, every_s=1.0):
        """Let the child look so often; return what it has found."""
        found = []
        for _ in range(times):
            self.now += every_s
            found.append(watch.agent_is_gone())
        return found


@pytest.fixture
def world(monkeypatch):
    world = World()
    monkeypatch.setattr(agent_watch, "time", world)
    monkeypatch.setattr(agent_watch, "state_of", lambda _pid: world.state)
    return world


def test_a_stopped_agent_is_gone_after_some_seconds_and_a_running_one_is_not(world):
    watch = AgentWatch(1)
    assert not any(world.checks(watch, 100))
    world.state = "T"
    assert not any(world.checks(watch, int(STOPPED_S) - 1))
    assert world.checks(watch, 1) == [True]


def test_an_agent_that_goes_on_in_time_is_kept(world):
    watch = AgentWatch(1)
    for world.state in "TSTSTS":
        assert not any(world.checks(watch, int(STOPPED_S) - 1))


def test_a_pause_of_the_child_itself_is_no_reason_to_leave(world):
    watch = AgentWatch(1)
    world.state = "T"
    assert world.checks(watch, 1, every_s=3600.0) == [False]
    assert world.checks(watch, int(STOPPED_S) - 2)[-1]


def test_an_agent_at_a_breakpoint_is_waited_for_and_one_that_has_ended_is_not(world):
    watch = AgentWatch(1)
    world.state = "t"
    assert not any(world.checks(watch, 100))
    world.state = ""
    assert world.checks(watch, 1) == [True]


def test_the_maker_of_a_pair_of_sockets_is_known():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_of(theirs) == os.getpid()
