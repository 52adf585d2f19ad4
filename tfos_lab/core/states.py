"""The states of nodes and of clusters: what each one means, and how it is drawn.

This is the only list of states: the driver asks a state what it means, and displays and style sheets how it is drawn.
States are strings, so messages and JSON hold plain words.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Self


class Tone(StrEnum):
    """The colour of a state: ``--tfos-<tone>`` in ``theme.css``."""

    IDLE = "idle"
    BUSY = "busy"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True)
class Look:
    """How a state is drawn. The sign stands beside the word, so that no state depends on its colour alone."""

    sign: str
    tone: Tone


_IDLE = Look("○", Tone.IDLE)
_RUNNING = Look("●", Tone.BUSY)
_DONE = Look("✓", Tone.GOOD)
_BROKEN = Look("✗", Tone.BAD)
_STOPPED = Look("■", Tone.IDLE)


class _State(StrEnum):
    """A word with a look; `order` is its place among the states of its kind.

    What else is asked of a state is found out once: the driver asks thousands of nodes several times a second.
    """

    look: Look
    order: int

    def __new__(cls, word: str, look: Look = _IDLE) -> Self:
        """Make a member from the tuple that it is defined by."""
        state = str.__new__(cls, word)
        state._value_ = word
        state.look = look
        state.order = len(cls.__members__)
        return state

    def __repr__(self) -> str:
        # What a notebook shows for `cluster.state`.
        return repr(self.value)

    @cached_property
    def ended(self) -> bool:
        """Whether this is the last state: nothing follows it. Those that are come after all others."""
        return self.order >= type(self)("done").order

    @cached_property
    def is_broken(self) -> bool:
        """Whether something went wrong."""
        return self.look is _BROKEN


class NodeState(_State):
    """How far a node has come, in order.

    ``STOPPING`` is for displays alone: nodes that are still there when their cluster has failed, or is stopping.
    ``STOPPED_EARLY`` is the end of a trial that a search has cut.
    """

    WAITING = "waiting"
    RESERVED = "reserved", Look("◔", Tone.BUSY)
    IMPORTING = "importing", Look("◑", Tone.BUSY)
    STARTING = "starting", Look("◑", Tone.BUSY)
    RUNNING = "running", _RUNNING
    SERVING = "serving", _RUNNING
    STOPPING = "stopping", Look("◌", Tone.WARN)
    DONE = "done", _DONE
    FAILED = "failed", _BROKEN
    LOST = "lost", _BROKEN
    STOPPED = "stopped", _STOPPED
    STOPPED_EARLY = "stopped early", _STOPPED

    @cached_property
    def is_present(self) -> bool:
        """Whether the node has reserved and not ended: its agent sends heartbeats."""
        return self is not NodeState.WAITING and not self.ended

    @cached_property
    def is_up(self) -> bool:
        """Whether the node's function runs, or has returned."""
        return self in (NodeState.RUNNING, NodeState.SERVING, NodeState.DONE)

    @cached_property
    def is_replaceable(self) -> bool:
        """Whether another process may still take the rank: its start message has not been sent."""
        return self.order <= NodeState.RESERVED.order


class RunState(_State):
    """How far a cluster as a whole has come, in order.

    ``LOST`` is for displays alone: a cluster whose kernel has gone.
    """

    LAUNCHING = "launching", Look("○", Tone.BUSY)
    RESERVING = "reserving", Look("◔", Tone.BUSY)
    STARTING = "starting", Look("◑", Tone.BUSY)
    RUNNING = "running", _RUNNING
    RESTARTING = "restarting", Look("◌", Tone.WARN)
    STOPPING = "stopping", Look("◌", Tone.WARN)
    DONE = "done", _DONE
    FAILED = "failed", _BROKEN
    STOPPED = "stopped", _STOPPED
    LOST = "lost", _BROKEN

    @cached_property
    def has_begun(self) -> bool:
        """Whether waiting for the nodes to run is over: they run, or never will."""
        return self.ended or self in (RunState.RUNNING, RunState.STOPPING)

    @cached_property
    def is_settled(self) -> bool:
        """Whether the fate of the present nodes is known: the cluster has ended, or starts others in their place."""
        return self.ended or self is RunState.RESTARTING

    @cached_property
    def is_ending(self) -> bool:
        """Whether no node joins or leaves the work any more."""
        return self.is_settled or self is RunState.STOPPING

    @cached_property
    def stop_requested(self) -> bool:
        """Whether the user has stopped the cluster."""
        return self in (RunState.STOPPING, RunState.STOPPED)


_GONE = frozenset({NodeState.DONE, NodeState.FAILED, NodeState.LOST, NodeState.STOPPED})
_UNDONE = frozenset({RunState.STOPPING, RunState.RESTARTING, RunState.FAILED})

#: The table of transitions: what may follow each state of a node. Anything else is late news, and changes nothing. From
#: one that runs back to its import goes a worker that serves others, when it is started again alone; the agent of one
#: that has ended may still be lost.
NODE_TRANSITIONS: dict[NodeState, frozenset[NodeState]] = {
    NodeState.WAITING: _GONE | {NodeState.RESERVED},
    NodeState.RESERVED: _GONE | {NodeState.IMPORTING, NodeState.STARTING, NodeState.RUNNING, NodeState.SERVING},
    NodeState.IMPORTING: _GONE | {NodeState.STARTING, NodeState.RUNNING, NodeState.SERVING},
    NodeState.STARTING: _GONE | {NodeState.IMPORTING, NodeState.RUNNING, NodeState.SERVING},
    NodeState.RUNNING: _GONE | {NodeState.IMPORTING, NodeState.SERVING},
    NodeState.SERVING: _GONE | {NodeState.IMPORTING},
    NodeState.DONE: frozenset({NodeState.LOST}),
    NodeState.FAILED: frozenset({NodeState.LOST}),
    NodeState.STOPPED: frozenset({NodeState.LOST}),
    NodeState.LOST: frozenset(),
}

#: What may follow each state of a run. After ``RESTARTING`` comes the next start of its nodes, which may be lost, too.
RUN_TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    RunState.LAUNCHING: _UNDONE | {RunState.RESERVING},
    RunState.RESERVING: _UNDONE | {RunState.STARTING},
    RunState.STARTING: _UNDONE | {RunState.RUNNING, RunState.DONE},
    RunState.RUNNING: _UNDONE | {RunState.DONE},
    RunState.RESTARTING: frozenset({RunState.RESERVING, RunState.STOPPING, RunState.FAILED, RunState.STOPPED}),
    RunState.STOPPING: frozenset({RunState.STOPPED}),
    RunState.DONE: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.STOPPED: frozenset(),
}
