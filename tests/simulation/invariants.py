"""What holds for every run, whatever happens to it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

from tests.simulation.agents import Agent
from tests.simulation.plan import GRACE_S
from tests.simulation.run import PATIENCE_S, Run
from tests.simulation.world import EPOCH_S
from tfos_lab.core.states import RUN_TRANSITIONS, NodeState, RunState
from tfos_lab.driver.state.cluster_state import HEARTBEAT_S
from tfos_lab.driver.state.instructions import Failure

# From the last fault on: nodes work, are lost, asked for their stacks, stopped and drained, once for each start.
_START_S = 4.0
_END_S = 40.0
# A child that can be reached is gone so long after the end; one that cannot ends with its agent, which gives up.
_REACHED_S = GRACE_S + 8.0
_UNREACHED_S = 90.0
# Nodes have so long to drain once it is known how the run ends.
_DRAIN_S = GRACE_S + 10.0 + 5.0
# Processes are asked to end before the next ones are started, and not waited for.
_MOMENT_S = 1.0
# An agent that can be reached hears of the driver after so long at most; one that is not wanted, that it is to leave.
_QUIET_S = HEARTBEAT_S + 2.0
_ANSWER_S = 3.0
# Of faults that keep what wants to end a node from reaching it.
_UNREACHABLE = {"cut", "stop the agent", "the agent hangs", "kill the kernel", "slow", "stop the child"}


def problems(run: Run) -> list[str]:
    """Return what does not hold for a run that is over; mostly nothing."""
    return [text for law in _LAWS for text in law(run)]


def _killing(run: Run) -> set[str]:
    return {node for one in run.done if one.kills or one.may_kill for node in one.nodes}


def _was(run: Run, *kinds: str) -> bool:
    return any(one.kind in kinds for one in run.done)


def _is_late(run: Run, cause: Failure | None) -> bool:
    """Whether nodes have failed that did not come up in time, after some fault: it names those that are missing."""
    return bool(cause is not None and cause.node == "launcher" and run.done)


def it_ends(run: Run) -> Iterator[str]:
    """It ends by itself, soon after the last fault is over; without a kernel there is nobody who could tell."""
    if run.kernel.is_gone:
        return
    if not run.head.is_over:
        yield f"it is {run.head.state.state} for ever"
    elif run.seen.told == "it did not end":
        if run.plan.hang_fails or not _was(run, "stop the child"):
            yield f"it did not end within {PATIENCE_S:g} s"
    else:
        ended_s = run.seen.states[-1][0]
        last_s = max([EPOCH_S, *(one.until_s for one in run.done)])
        starts = len(run.heads) + run.seen.alone
        if ended_s - last_s > _END_S + starts * (_START_S + run.plan.works_s + _END_S):
            yield f"it ended {ended_s - last_s:.0f} s after the last fault"
        settled_s = next(at_s for at_s, state, _ in reversed(run.seen.states) if state is not RunState.STOPPED)
        if (
            run.over_s[-1] - settled_s > _DRAIN_S
            and run.head.state.state is RunState.FAILED
            and not _was(run, "pause the kernel")
        ):
            yield f"it was over {run.over_s[-1] - settled_s:.0f} s after its end was known"


def it_is_told_once(run: Run) -> Iterator[str]:
    """The end is published once, with one reason, and a failed run has a cause."""
    if run.kernel.is_gone:
        return
    ends = [(state, reason) for _, state, reason in run.seen.states if state.ended]
    if len(ends) != 1:
        yield f"its end was published {len(ends)} times: {ends}"
    if run.head.state.state is RunState.FAILED and not (run.head.cause and run.head.state.reason):
        yield "it failed without a cause"
    failures = [reason for _, state, reason in run.seen.states if state is RunState.FAILED]
    if failures and failures[-1] != run.head.state.reason:
        yield f"it was told as {failures[-1]!r}, and is {run.head.state.reason!r}"


def who_stops_a_run_has_stopped_it(run: Run) -> Iterator[str]:
    """A run that is being stopped does not fail any more."""
    states = [state for _, state, _ in run.seen.states]
    after = states[states.index(RunState.STOPPING) :] if RunState.STOPPING in states else []
    if RunState.FAILED in after or RunState.RESTARTING in after:
        yield f"it was stopped, and became {', '.join(after[1:])}"


def the_blamed_had_a_fault(run: Run) -> Iterator[str]:
    """Whoever is blamed was met by a fault that can end a node."""
    for head in run.heads:
        cause = head.cause
        if cause is None or cause.node in _killing(run):
            continue
        if cause.node == "feed" and run.done:
            continue
        if _is_late(run, cause):
            continue
        yield f"{cause.node} is blamed: {cause.kind}: {cause.message}"


def states_follow_one_another(run: Run) -> Iterator[str]:
    """A run goes on from one state to the next, and never back but by a restart."""
    states = [RunState.LAUNCHING, *(state for _, state, _ in run.seen.states)]
    for state, following in itertools.pairwise(states):
        is_next_start = state is following is RunState.RESTARTING
        if following not in RUN_TRANSITIONS[state] and not is_next_start:
            yield f"{following} follows {state}"


def a_node_that_has_ended_stays_as_it_is(run: Run) -> Iterator[str]:
    """How a node has ended does not change; but it may be lost afterwards, with its agent."""
    for (_, node), states in run.seen.nodes.items():
        for state, following in itertools.pairwise(states):
            if state.ended and following not in (state, NodeState.LOST):
                yield f"{node} was {state}, and became {following}"


def nodes_know_one_another(run: Run) -> Iterator[str]:
    """Nodes start together: each is told where all of them are, and by its own address the others know it."""
    told: dict[int, dict[str, list[str]]] = {}
    for agent, spec in run.seen.started:
        addresses = [address for job in spec.values() for address in job]
        if agent.address != spec[agent.spec.job_name][agent.spec.task_index] or not all(addresses):
            yield f"{agent.name} at {agent.address} was started, and the nodes are {spec}"
        if spec != told.setdefault(agent.head_number, spec):
            yield f"{agent.name} was told {spec}, another node {told[agent.head_number]}"


def agents_are_answered_and_told_to_leave(run: Run) -> Iterator[str]:
    """The driver answers agents, and tells them when nothing is wanted of them any more: they need not find out."""
    kinds = [one.kind for one in run.done]
    for agent in run.agents:
        name = f"agent {agent.pid} of {agent.name}"
        if not kinds and agent.silent_s > _QUIET_S:
            yield f"{name} heard nothing for {agent.silent_s:.0f} s"
        if not kinds and agent.why != "leaves":
            yield f"{name} {agent.why}, and was not told to leave"
        first_s = next((one.began_s for one in run.agents if one.name == agent.name), 0.0)
        if kinds == ["second task"] and agent.began_s > first_s and _starts(run, agent) != 1:
            late_s = min(agent.left_s, run.over_s[agent.head_number]) - agent.began_s
            if late_s > (_ANSWER_S if agent.why == "leaves" else _MOMENT_S):
                yield f"{name} is one too many, and left {late_s:.0f} s after it had come: {agent.why}"


def _starts(run: Run, agent: Agent) -> int:
    return sum(started is agent for started, _ in run.seen.started)


def nothing_is_lost_without_a_fault(run: Run) -> Iterator[str]:
    """Where nothing has happened that can end a node, no node is lost and the run is done."""
    if _killing(run) or run.kernel.is_gone:
        return
    lost = set(run.seen.lost) - {node for one in run.done for node in one.nodes}
    if lost:
        yield f"{', '.join(sorted(lost))} lost without a fault"
    is_late = _is_late(run, run.head.cause)
    if run.head.state.state is not RunState.DONE and not run.user_stops and not is_late:
        yield f"it is {run.head.state.state} without a fault: {run.head.state.reason}"


def a_fault_is_no_success(run: Run) -> Iterator[str]:
    """Where a node that trains was killed in the middle of its work, the run is not done without a restart."""
    spared = {spec.node for spec in run.plan.specs if spec.job_name == "evaluator"}
    killed = {node for one in run.done if one.kills for node in one.nodes} - spared
    if run.plan.ps:  # the chief alone does the work
        killed &= {"chief:0"}
    if len(run.done) == 1 and killed and run.head.state.state is RunState.DONE and not run.budget.used:
        is_retried = not run.plan.barrier  # perhaps before it was told to start
        if not is_retried and not _was(run, "kill the kernel", "lose the executor", "kill the fork server"):
            yield f"it is done, though {run.done[0].kind} ({', '.join(killed)})"


def an_evaluator_is_spared(run: Run) -> Iterator[str]:
    """Where only the evaluator's function has failed, training goes on."""
    evaluators = {spec.node for spec in run.plan.specs if spec.job_name == "evaluator"}
    is_alone = len(run.done) == 1 and run.done[0].nodes and run.done[0].nodes <= evaluators
    if is_alone and _was(run, "raise", "exit", "kill the child") and run.head.state.state is not RunState.DONE:
        yield f"it is {run.head.state.state} for its evaluator"


def restarts_are_within_budget(run: Run) -> Iterator[str]:
    """No more starts than the budget has, and each is told once."""
    if run.budget.used > run.budget.total or len(run.heads) - 1 + run.seen.alone > run.budget.used:
        counted = f"{run.budget.used} of {run.budget.total}"
        yield f"{len(run.heads)} starts, {run.seen.alone} of single nodes, where {counted} were counted"
    told = sum(state is RunState.RESTARTING for _, state, _ in run.seen.states)
    if told > run.budget.used:
        yield f"{told} restarts were told, where {run.budget.used} of {run.budget.total} were counted"


def it_starts_again_for_a_node_that_is_gone(run: Run) -> Iterator[str]:
    """With a restart left, a run outlives a node that is gone; for a function that fails nothing is started again."""
    evaluators = {spec.node for spec in run.plan.specs if spec.job_name == "evaluator"}
    if len(run.done) != 1 or not run.budget.total or run.plan.ps or run.done[0].nodes & evaluators:
        return
    [one] = run.done
    if one.kind in ("raise", "exit") and run.budget.used:
        yield f"it was started again though a function has failed: {one.kind}"
    is_gone = one.kills and one.kind in ("kill the child", "kill the agent", "lose the executor")
    if is_gone and run.head.state.state is not RunState.DONE:
        yield f"it is {run.head.state.state} after {run.budget.used} restarts, though only {one.kind}"


def children_end(run: Run) -> Iterator[str]:
    """No child lives on for long after its head is over, nor beside one of the next, but where nobody reaches it."""
    for life in run.lives:
        agent = life.agent
        name = f"the child of {agent.name} ({agent.pid})"
        if life.ended_s is None:
            yield f"{name} never ends"
            continue
        if agent in run.unnoticed:
            continue
        is_reached = not any(one.kind in _UNREACHABLE and agent.name in one.nodes for one in run.done)
        is_reached = is_reached and not run.kernel.is_gone
        late_s = life.ended_s - run.over_s[agent.head_number]
        if late_s > (_REACHED_S if is_reached else _UNREACHED_S):
            yield f"{name} ends {late_s:.0f} s after all was over"
        begun_s = [other.began_s for other in run.lives if other.agent.head_number > agent.head_number]
        if is_reached and begun_s and life.ended_s > min(begun_s) + _MOMENT_S:
            yield f"{name} lives beside one of the next start"
    stay = [agent.name for agent in run.agents if agent.is_there and not agent.stands]
    if stay:
        yield f"agents never leave: {', '.join(stay)}"


def every_row_comes_once(run: Run) -> Iterator[str]:
    """Where a run with rows is done, each row was read by one node, and all nodes took as many steps."""
    feed = run.feed
    if feed is None:
        return
    if feed.problem:
        yield feed.problem
    is_done = run.head.state.state is RunState.DONE and not _was(run, "stop reading")
    is_whole = is_done and feed.is_complete and not feed.is_cut
    if len(run.seen.steps) > 1 and not run.plan.ps:
        yield f"nodes have different plans: {run.seen.steps}"
    if any(nodes != len(run.seen.rows) for _, nodes in run.seen.steps) and is_whole and not run.plan.ps:
        yield f"{len(run.seen.rows)} nodes read, and the plans are {run.seen.steps}"
    for name, rows in run.seen.rows.items():
        rank = next(spec.rank for spec in run.plan.specs if spec.node == name)
        committed = run.head.feed_state.feed(0)
        if committed is None or committed.rows_of(rank) != len(rows):
            yield f"{name} has read {len(rows)} rows, and the driver has committed others: {committed}"
    amounts = [len(rows) for rows in run.seen.rows.values()]
    if is_whole and max(amounts, default=0) - min(amounts, default=0) > 1 and not run.plan.ps:
        yield f"rows are dealt out unevenly: {amounts}"
    counts = Counter(row for rows in run.seen.rows.values() for row in rows)
    twice = [row for row, count in counts.items() if count > 1]
    if twice:
        yield f"rows were read twice: {twice[:5]}"
    expected = {row for rows in feed.partitions for row in rows}
    if is_whole and set(counts) != expected:
        yield f"{len(expected - set(counts))} of {len(expected)} rows were read by nobody"


_LAWS: tuple[Callable[[Run], Iterator[str]], ...] = (
    it_ends,
    it_is_told_once,
    who_stops_a_run_has_stopped_it,
    the_blamed_had_a_fault,
    states_follow_one_another,
    a_node_that_has_ended_stays_as_it_is,
    nodes_know_one_another,
    agents_are_answered_and_told_to_leave,
    nothing_is_lost_without_a_fault,
    a_fault_is_no_success,
    an_evaluator_is_spared,
    restarts_are_within_budget,
    it_starts_again_for_a_node_that_is_gone,
    children_end,
    every_row_comes_once,
)
