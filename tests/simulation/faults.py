"""What goes wrong, and to whom; each function does it, if it can be done then, and says what may follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.agents import Agent
from tests.simulation.plan import Fault
from tfos_lab.core import messages as m
from tfos_lab.driver.state.cluster_state import LOST_AFTER_S
from tfos_lab.node.driver_link import HUNG_AFTER_S

if TYPE_CHECKING:
    from tests.simulation.run import Run

# Silence that is shorter is never a loss: heartbeats come each second, and may be on their way for a moment.
_HARMLESS_S = LOST_AFTER_S - 1.5
_SILENCES = {"cut", "slow", "stop the agent"}
# A feed waits a little longer for a node to open its endpoints.
_OPENS_S = 25.0
_PEERS_MISS_S = (8.0, 12.0)


@dataclass
class Done:
    """A fault that was done to ``nodes``, and was over at ``until_s``.

    ``kills`` says whether their functions cannot go on after it, and ``may_kill`` whether that depends on chance, or on
    how long it lasts.
    """

    kind: str
    nodes: set[str]
    kills: bool
    may_kill: bool
    until_s: float


def do(run: Run, fault: Fault) -> None:  # noqa: C901, PLR0912 - a case for each kind
    """Do a fault to a run, unless that is over."""
    if run.head.is_over and run.head.state.state != "restarting":
        return
    match fault.kind:
        case "pause the kernel":
            run.kernel.paused_until_s = max(run.kernel.paused_until_s, run.world.now_s + fault.for_s)
            _note(run, fault, set())
        case "kill the kernel":
            _kill_kernel(run, fault)
        case "the user stops":
            _note(run, fault, set())
            run.kernel.call(lambda: run.stop(run.world.rng.choice((0.0, 1.0))))
        case "cut" | "slow":
            _reach(run, fault)
        case "kill the fork server":
            _kill_fork_server(run, fault)
        case "lose the executor":
            _lose_executor(run, fault)
        case "second task":
            if run.plan.spark and run.agent_of(fault.node):
                run.launch(fault.node, 0.05)
                _note(run, fault, {fault.node})
        case "lose a feed task" | "late feed task" | "feed task twice":
            if run.feed is not None and run.feed.befall(fault.kind):
                _note(run, fault, set())
        case "stop reading":
            _stop_reading(run, fault)
        case "late task" | "lost task":
            _note(run, fault, {fault.node}, kills=fault.kind == "lost task")
        case _:
            agent = run.agent_of(fault.node)
            if agent is not None:
                _to_agent(run, fault, agent)


def late_s(run: Run, node: str) -> float | None:
    """Return how much later Spark, or this machine, starts a node's first agent; None if it never does."""
    late = 0.0
    for fault in run.plan.faults:
        if fault.node == node and len(run.heads) == 1:
            if fault.kind == "lost task":
                return None
            late += fault.for_s if fault.kind == "late task" else 0.0
    return late


def _note(run: Run, fault: Fault, nodes: set[str], *, kills: bool = False, may_kill: bool = False) -> None:
    run.world.tell("FAULT", str(fault))
    lasts_s = fault.for_s if fault.for_s < 1e5 else 0.0
    if fault.kind in _SILENCES:  # one that follows another makes it longer
        before = [one for one in run.done if one.kind in _SILENCES and one.nodes & nodes]
        may_kill |= any(one.until_s > run.world.now_s - _HARMLESS_S for one in before)
    run.done.append(Done(fault.kind, nodes, kills, may_kill, run.world.now_s + lasts_s))


def _is_at_work(agent: Agent) -> bool:
    """Whether the run needs this node: it has not told that its function has ended."""
    return not agent.has_ended


def _to_agent(run: Run, fault: Fault, agent: Agent) -> None:  # noqa: C901 - a case for each kind
    child, at_work, nodes = agent.child, _is_at_work(agent), {agent.name}
    if agent.stands == "hangs" and fault.kind != "kill the agent":
        return  # nobody could tell of it
    match fault.kind:
        case "kill the agent":
            # Here, nobody waits for a node that has told how it ended; Spark may end all others with it.
            _note(run, fault, nodes, kills=at_work, may_kill=run.plan.spark)
            agent.go(-9, "is killed")
        case "stop the agent" if not agent.stands:
            is_silent = fault.for_s > _HARMLESS_S
            _note(run, fault, nodes, kills=at_work and is_silent and fault.for_s > 1e5, may_kill=is_silent)
            agent.stand("stopped", fault.for_s)
        case "the agent hangs" if not agent.stands:
            ends = fault.for_s > HUNG_AFTER_S
            fails_feed = fault.for_s > _OPENS_S and bool(run.plan.partitions)
            _note(run, fault, nodes, kills=at_work and ends, may_kill=ends or fails_feed)
            agent.stand("hangs", fault.for_s)
        case "kill the child" if child is not None:
            _note(run, fault, nodes, kills=not child.has_ended, may_kill=True)
            agent.child_ends(m.Outcome(kind="exited", exit_code=-9))
        case "exit" if child is not None and child.runs and not child.is_stopped:
            _note(run, fault, nodes, kills=not child.has_ended, may_kill=True)
            agent.child_ends(m.Outcome(kind="exited", exit_code=3))
        case "raise" if child is not None and child.runs:
            if child.ends(m.Outcome(kind="raised", error="ValueError", message="no", traceback="Traceback")):
                _note(run, fault, nodes, kills=True)
        case "stop the child" if child is not None and child.runs and not child.is_stopped:
            for_ever = fault.for_s > 1e5
            _note(run, fault, nodes, kills=False, may_kill=for_ever)
            child.stop(fault.for_s)
            if for_ever and child.trains and not child.has_ended:
                run.block(agent)
                run.world.at(run.world.between(*_PEERS_MISS_S), lambda: run.trouble(agent, silent=True))


def _kill_kernel(run: Run, fault: Fault) -> None:
    _note(run, fault, {agent.name for agent in run.present}, kills=True)
    run.kernel.is_gone = True
    for agent in run.present:
        if agent.executor:  # its connection ends; one of this machine sees the kernel's end
            agent.hang_up()
        else:
            run.world.at(
                run.world.between(0.0, 0.5) + (7.0 if agent.stands else 0.0), agent.go, 0, "ends with the kernel"
            )


def _reach(run: Run, fault: Fault) -> None:
    host = run.host_of(fault.node)
    nodes = {spec.node for spec in run.plan.specs if run.host_of(spec.node) is host}  # those that come later, too
    until_s = run.world.now_s + fault.for_s
    if fault.kind == "slow":
        host.slow_until_s = max(host.slow_until_s, until_s)
        _note(run, fault, nodes)
    else:
        host.cut_until_s = max(host.cut_until_s, until_s)
        _note(run, fault, nodes, may_kill=fault.for_s > _HARMLESS_S)


def _kill_fork_server(run: Run, fault: Fault) -> None:
    """Kill what the children of a host were forked from: they end with it."""
    host = run.host_of(fault.node)
    agents = [agent for agent in run.present if agent.host is host and agent.child is not None]
    at_work = any(_is_at_work(agent) for agent in agents)
    if agents:
        _note(run, fault, {agent.name for agent in agents}, kills=at_work, may_kill=True)
    for agent in agents:
        outcome = m.Outcome(
            kind="exited", message="the process it was forked from has ended", exit_code=-9, orphaned=True
        )
        run.world.at(run.world.between(0.0, 0.05), agent.child_ends, outcome)


def _lose_executor(run: Run, fault: Fault) -> None:
    agent = run.agent_of(fault.node)
    if agent is not None and agent.executor:
        beside = [one for one in run.present if one.executor == agent.executor]
        at_work = any(_is_at_work(one) for one in beside)
        _note(run, fault, run.lose_executor(agent.executor), kills=at_work, may_kill=True)


def _stop_reading(run: Run, fault: Fault) -> None:
    readers = [agent for agent in run.present if agent.child is not None and agent.child.trains and agent.child.runs]
    if readers:
        _note(run, fault, set())
        for agent in readers:
            assert agent.child is not None
            agent.child.stop_reading()
