"""The state machine of a cluster: which nodes have reserved, run and ended, and what follows from it.

Messages, ticks and requests go in; instructions come out, and the server carries them out. There are no sockets,
threads or clocks: time is an argument. What may follow what is a table in `core.states`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tfos_lab.core import messages as m
from tfos_lab.core.launchers import THIS_MACHINE
from tfos_lab.core.roles import NodeSpec, Role, chief_of, cluster_spec
from tfos_lab.core.states import NODE_TRANSITIONS, RUN_TRANSITIONS, NodeState, RunState
from tfos_lab.driver.state.causes import SILENT_S, Causes, failure_from, in_terms_of_steps, summary
from tfos_lab.driver.state.cluster_node import ClusterNode, Silence
from tfos_lab.driver.state.events import (
    EvaluatorFailed,
    NodeChanged,
    NodeHung,
    NodeStartedAgain,
    NodeView,
    StateChanged,
    changed,
)
from tfos_lab.driver.state.instructions import (
    Failure,
    Finished,
    Instruction,
    Overdue,
    Publish,
    SendTo,
    StartAll,
)
from tfos_lab.errors import FeedError, FeedTimeout

# A node without heartbeats for this long is lost.
LOST_AFTER_S = 4.5
# So often, in attended seconds, all nodes hear that the driver is there.
HEARTBEAT_S = 10.0
# The loss of an executor is reported so much later at most than that children have ended with its fork server.
ORPHAN_PATIENCE_S = 3.0
# Where the end of an executor is reported, its loss follows so much later at most, with Spark's reason.
LEAVING_PATIENCE_S = 7.0
# Spark ends the tasks of all nodes within so long of the loss of one.
_SPARK_ENDS_ALL_S = 1.2
# How long a node that is gone is waited for: for the rest of what it has sent, and for whoever says why.
_REASON_S = 0.5
# After the end, nodes have this long to send the rest of their logs.
DRAIN_TIMEOUT_S = 10.0
# After a stop and its grace, so long, and as long again for each file that moves.
STOP_EXTRA_S = 5.0
# What a stop waits for.
MOVES: tuple[type[m.FromAgent], ...] = (m.FilePiece, m.EventFilesPut)
# A lost node may still send its output: its agent sometimes outlives its executor.
FAREWELL_S = 5.0


@dataclass
class RestartBudget:
    """The option ``restarts``, shared by all starts of a cluster's nodes.

    A restart of all nodes counts as one, and so does that of a single worker.
    """

    total: int = 0
    used: int = 0

    @property
    def has_left(self) -> bool:
        """Whether another one may follow."""
        return self.used < self.total

    def spend(self) -> int:
        """Count one more; return its number, from 1."""
        self.used += 1
        return self.used


class ClusterState:
    """The state of one cluster, and the rules by which it changes.

    The specs are in rank order, and ``grace_s`` is between SIGTERM and SIGKILL when nodes are ended. With
    ``needs_evaluator``, the failure of an evaluator is that of the cluster. The restarts are of a worker that serves
    others alone, or of all nodes. With ``starts_when_asked``, a node that is to start does so only when somebody waits
    for it: then it is never overdue.

    `state` is that of the cluster as a whole, and `reason` one sentence on why it is in this state, or empty; both
    change here only. A state that `gave_up` has not waited for all nodes.
    """

    def __init__(
        self,
        node_specs: list[NodeSpec],
        *,
        grace_s: float,
        needs_evaluator: bool = False,
        restarts: RestartBudget | None = None,
        starts_when_asked: bool = False,
    ) -> None:
        chief = chief_of(node_specs)
        self._nodes = [ClusterNode(spec, is_chief=spec == chief) for spec in node_specs]
        self._grace_s = self._evaluator_s = self._patience_s = grace_s
        self._needs_evaluator = needs_evaluator
        self._restarts = restarts or RestartBudget()
        self._starts_when_asked = starts_when_asked
        # When all nodes have to run, in attended seconds, and how long they were given.
        self._start_by: tuple[float, float] | None = None
        self.state = RunState.LAUNCHING
        self.reason = ""
        self.causes = Causes()
        self._earlier_loss: tuple[Failure, float] | None = None
        self._leaving_until_s = 0.0
        # Nodes whose connections have not ended; of agents that are gone, why and since when.
        self._connected: set[int] = set()
        self._gone: dict[int, tuple[str, float]] = {}
        self._ended_s: float | None = None
        self._output_at_s = 0.0
        self._finishing = False
        self._over = self.gave_up = False
        # When a stop gives up, in attended seconds, and what moves that.
        self._stop_by_s, self._stop_awaits = math.inf, MOVES
        self._silence = Silence(len(node_specs))
        self._beats_at_s = HEARTBEAT_S

    # ---- queries ----------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self._nodes)

    @property
    def attended_s(self) -> float:
        """Seconds so far in which the driver was running, and would have heard the nodes."""
        return self._silence.attended_s

    @property
    def views(self) -> tuple[NodeView, ...]:
        """All nodes, in rank order."""
        return tuple(node.view for node in self._nodes)

    def view_of(self, rank: int) -> NodeView:
        """Return one node."""
        return self._nodes[rank].view

    @property
    def executors_cut_off(self) -> set[str]:
        """The executors of nodes that have not ended, and whose connections have."""
        cut_off = [node.view for node in self._nodes if node.spec.rank not in self._connected]
        return {view.executor for view in cut_off if view.executor and not view.state.ended}

    def may_replace(self, rank: int) -> bool:
        """Whether another process may still take a node's place: the others have not been told the address of this."""
        is_told = self.state in (RunState.STARTING, RunState.RUNNING)
        return self._nodes[rank].view.state.is_replaceable and not is_told

    @property
    def outcomes(self) -> dict[str, m.Outcome]:
        """How nodes have ended, by name; only those that have."""
        return {node.spec.node: node.outcome for node in self._nodes if node.outcome is not None}

    @property
    def missing(self) -> list[str]:
        """Nodes that have not reserved."""
        return [node.spec.node for node in self._nodes if node.view.state is NodeState.WAITING]

    # ---- messages ---------------------------------------------------------------------------------------------------

    def handle(  # noqa: C901 - one case for each kind
        self, message: m.FromAgent, now_s: float
    ) -> list[Instruction]:
        """Handle an agent's message; return what must now be done."""
        node = self._nodes[message.rank]
        self._silence.broken_by(message.rank, now_s)
        node.view = changed(node.view, last_heartbeat_s=now_s)
        match message:
            case m.Reserve():
                return self._reserve(node, message, now_s)
            case m.Progressed(state=state, pid=pid):
                return self._progress(node, NodeState(state), pid, now_s)
            case m.Reported():
                return [Publish(node.take_report(message, now_s))]
            case m.RowsTaken(rows=rows):
                node.view = changed(node.view, rows=rows)
            case m.Activity(seen=seen):
                node.view = changed(node.view, activity=changed(seen, slower=None))
            case m.Ended(outcome=outcome):
                return self._end(node, outcome, now_s)
            case m.FilesListed(folder="output"):
                node.sends_output = True
            case m.FilePiece() | m.EventFilesPut():
                self._output_at_s = now_s
                if isinstance(message, self._stop_awaits):
                    self._stop_by_s = max(self._stop_by_s, self._silence.attended_s + STOP_EXTRA_S)
            case m.OutputSettled():
                node.sends_output = False
                shutdown = [SendTo(message.rank, m.Shutdown())] if node.view.state is NodeState.LOST else []
                return [*shutdown, *self._when_drained(now_s)]
            case m.Drained():
                node.drained = True
                return [SendTo(message.rank, m.Shutdown()), *self._when_drained(now_s)]
        return []

    def _reserve(self, node: ClusterNode, message: m.Reserve, now_s: float) -> list[Instruction]:
        self._connected.add(message.rank)
        # Spark may retry a task: the newer address replaces the lost one.
        self._gone.pop(message.rank, None)
        node.view = replace(
            node.view,
            host=message.host,
            executor=message.executor,
            address=message.address,
            gpus=tuple(message.gpus),
            gpu_count=message.gpu_count,
        )
        instructions = self._node_state(node, NodeState.RESERVED, now_s)
        if self.state.is_ending:
            return [*instructions, SendTo(message.rank, m.Stop(grace_s=0.0))]
        return [*instructions, *self._cluster_state(RunState.RESERVING, now_s), *self._when_all_reserved(now_s)]

    def _when_all_reserved(self, now_s: float) -> list[Instruction]:
        if self.state is not RunState.RESERVING or self.missing:
            return []
        spec = cluster_spec([n.spec for n in self._nodes], {n.spec.rank: n.view.address for n in self._nodes})
        return [StartAll(spec), *self._cluster_state(RunState.STARTING, now_s)]

    def _progress(self, node: ClusterNode, state: NodeState, pid: int, now_s: float) -> list[Instruction]:
        if node.view.state.ended:
            return []
        node.view = replace(node.view, pid=pid or node.view.pid)
        if state is NodeState.SERVING:
            node.serves, node.loss = True, None
        instructions = self._node_state(node, state, now_s) + self._when_all_started(now_s)
        return instructions + (self._when_all_returned(now_s) if state is NodeState.SERVING else [])

    def _when_all_started(self, now_s: float) -> list[Instruction]:
        if self.state is not RunState.STARTING:
            return []
        are_up = all(node.view.state.is_up or node.view.state.ended for node in self._nodes)
        return self._cluster_state(RunState.RUNNING, now_s) if are_up else []

    # ---- endings ----------------------------------------------------------------------------------------------------

    def _end(self, node: ClusterNode, outcome: m.Outcome, now_s: float) -> list[Instruction]:
        if node.outcome is not None or node.view.state.ended or self._may_be_lost(node, outcome):
            return []
        if self._goes_on_without(node, outcome):
            return self._start_again(node, failure_from(node.spec.node, outcome), now_s)
        node.outcome = outcome
        if outcome.kind == "returned":
            node.complete()
            # A function that returns at once has run all the same.
            is_quick = not (node.view.state.is_replaceable or node.view.state.is_up)
            begun = self._progress(node, NodeState.RUNNING, 0, now_s) if is_quick else []
            return begun + self._node_state(node, NodeState.DONE, now_s) + self._when_all_returned(now_s)
        if outcome.kind == "stopped" or self.state.stop_requested or self._finishing or self._missed_rows(outcome):
            # A node that hung, say, was stopped, and is the one that has failed.
            is_cause = self.causes.first is not None and self.causes.first.node == node.spec.node
            stopped = NodeState.FAILED if is_cause else NodeState.STOPPED
            return self._node_state(node, NodeState.DONE if self._finishing else stopped, now_s)
        failure = failure_from(node.spec.node, outcome)
        instructions = self._node_state(node, NodeState.FAILED, now_s, detail=summary(failure))
        if self._is_spared(node):
            return [*instructions, _told(failure, now_s), *self._when_all_started(now_s)]
        losses = [lost.loss for lost in self._nodes if outcome.consequence and lost.loss is not None]
        explained = [i for loss in losses for i in self._fail(loss, now_s, consequence=False)]
        return instructions + explained + self._fail(failure, now_s, consequence=outcome.consequence)

    def _may_be_lost(self, node: ClusterNode, outcome: m.Outcome) -> bool:
        """Whether to wait for the loss of a node's executor, which ends fork servers, and their children with them."""
        if not outcome.orphaned or node.view.executor in ("", THIS_MACHINE):
            return False
        if node.orphan is None:
            node.orphan = outcome
            self.expect_loss(ORPHAN_PATIENCE_S)
        return self._expects_loss

    def _missed_rows(self, outcome: m.Outcome) -> bool:
        """Whether a function has ended because the feed has failed, which it may hear before it is stopped."""
        first = self.causes.first
        is_of_feed = first is not None and (first.node == "feed" or first.kind == FeedTimeout.__name__)
        return is_of_feed and (outcome.error == FeedError.__name__ or outcome.consequence)

    def _is_spared(self, node: ClusterNode) -> bool:
        """Whether training goes on though this node has failed: no other waits for an evaluator."""
        return node.spec.role is Role.EVALUATOR and not self._needs_evaluator

    def _goes_on_without(self, node: ClusterNode, outcome: m.Outcome) -> bool:
        """Whether a worker has failed that can be started again while training goes on."""
        if outcome.kind not in ("raised", "exited") or outcome.consequence or not self._restarts.has_left:
            return False
        if self.state.is_ending or self._finishing or self.causes.has_unexplained:
            return False
        may_go = node.view.state is NodeState.SERVING or failure_from(node.spec.node, outcome).gone
        return node.trains and node.serves and may_go  # a worker that serves has no state of its own

    def _start_again(self, node: ClusterNode, failure: Failure, now_s: float) -> list[Instruction]:
        node.loss, node.orphan = failure, None
        node.view = replace(node.view, pid=0)
        number, reason = self._restarts.spend(), summary(failure)
        event = NodeStartedAgain(
            time_s=now_s, node=node.spec.node, reason=reason, restart=number, restarts=self._restarts.total
        )
        state = self._node_state(node, NodeState.IMPORTING, now_s, detail=reason)
        return [Publish(event), *state, SendTo(node.spec.rank, m.StartAgain())]

    def _fail(self, failure: Failure, now_s: float, *, consequence: bool) -> list[Instruction]:
        others_alive = any(not node.view.state.ended for node in self._nodes)
        is_cause = self.causes.add(failure, now_s, consequence=consequence, others_alive=others_alive)
        return self._fail_for(failure, now_s) if is_cause else []

    def _fail_for(self, failure: Failure, now_s: float) -> list[Instruction]:
        """The first real cause is known: stop all nodes."""
        steps = {
            node.spec.node: -1 if node.view.step is None else node.view.step for node in self._nodes if node.trains
        }
        failure = self.causes.first = in_terms_of_steps(failure, self.outcomes, steps)
        self.reason = f"{failure.node}: {summary(failure)}"
        self._ended_s = now_s
        if failure.gone and self._restarts.has_left:
            self._restarts.spend()
            return [*self._cluster_state(RunState.RESTARTING, now_s), *self._stop_nodes(self._grace_s)]
        return [*self._cluster_state(RunState.FAILED, now_s), *self._stop_nodes(self._grace_s, self.reason)]

    def _when_all_returned(self, now_s: float) -> list[Instruction]:
        """All training nodes have returned: parameter servers and the evaluator may end too."""
        if self._finishing or self.state.is_ending:
            return []
        awaited = [node.outcome for node in self._nodes if node.awaited]
        if not awaited or not all(outcome is not None and outcome.kind == "returned" for outcome in awaited):
            return []
        self._ended_s, self._finishing = now_s, True
        return self._let_finish(self._nodes)

    def _let_finish(self, nodes: Iterable[ClusterNode]) -> list[Instruction]:
        instructions: list[Instruction] = []
        for node in nodes:
            evaluates = node.spec.role is Role.EVALUATOR and not node.view.state.ended
            grace_s = self._evaluator_s if evaluates else self._grace_s
            self._patience_s = max(self._patience_s, grace_s)
            instructions.append(SendTo(node.spec.rank, m.Finish(grace_s=grace_s)))
        return instructions

    def record_logs(self, rank: int, now_s: float) -> None:
        """Record that a node sends its log: it is alive, and at its end it may take longer for as long as it does."""
        self._silence.broken_by(rank, now_s)
        self._output_at_s = now_s

    def _when_drained(self, now_s: float) -> list[Instruction]:
        if self._over or any(self._is_present(node, now_s) for node in self._nodes):
            return []
        if self._finishing:
            return self._conclude(RunState.DONE, now_s)
        return self._conclude(_final(self.state), now_s) if self.state.is_ending else []

    def _is_present(self, node: ClusterNode, now_s: float) -> bool:
        if node.view.state is NodeState.LOST and node.sends_output:
            return now_s - max(node.lost_s, self._output_at_s) <= FAREWELL_S
        return not node.drained and node.view.state not in (NodeState.WAITING, NodeState.LOST)

    def _conclude(self, state: RunState, now_s: float) -> list[Instruction]:
        self._over = True
        never_came = [node for node in self._nodes if node.view.state is NodeState.WAITING]
        gone = [change for node in never_came for change in self._node_state(node, NodeState.STOPPED, now_s)]
        late = [SendTo(node.spec.rank, m.Shutdown()) for node in self._nodes if node.sends_output]
        return [*gone, *late, *self._cluster_state(state, now_s), Finished()]

    # ---- requests and time ------------------------------------------------------------------------------------------

    def stop(
        self, now_s: float, *, grace_s: float | None = None, awaits: tuple[type[m.FromAgent], ...] = MOVES
    ) -> list[Instruction]:
        """End all nodes: the user has asked for it, and waits for longer while nodes send what it ``awaits``."""
        grace_s = self._grace_s if grace_s is None else grace_s
        if self._over:
            return []
        self._stop_by_s, self._stop_awaits = self._silence.attended_s + grace_s + STOP_EXTRA_S, awaits
        if self.state.ended or self._finishing:
            return self._stop_nodes(grace_s)
        self.reason = ""
        self._ended_s = now_s
        self._patience_s = max(self._patience_s, grace_s)
        instructions = [*self._cluster_state(RunState.STOPPING, now_s), *self._stop_nodes(grace_s)]
        return instructions + self._when_drained(now_s)

    def let_evaluator_go_on(self, now_s: float, grace_s: float) -> list[Instruction]:
        """Give the evaluator at least so long when the training nodes have returned; from now on, if they have."""
        self._evaluator_s = max(self._grace_s, grace_s)
        if not self._finishing or self._over:
            return []
        self._output_at_s = now_s
        evaluators = [node for node in self._nodes if node.spec.role is Role.EVALUATOR]
        return self._let_finish(node for node in evaluators if not node.view.state.ended)

    def abandon(self, now_s: float, state: RunState = RunState.STOPPED) -> list[Instruction]:
        """Start nothing in the place of lost nodes: the user has stopped the cluster meanwhile, or nothing can be."""
        return self._cluster_state(state, now_s) if self.state is RunState.RESTARTING else []

    def fail(self, failure: Failure, now_s: float) -> list[Instruction]:
        """End the cluster for a cause that the launcher or a feed has found."""
        if self.state.is_ending or self._over or self._finishing:
            return []
        return [*self._fail(failure, now_s, consequence=False), *self._when_drained(now_s)]

    def await_start(self, limit_s: float) -> list[Instruction]:
        """All agents are on their way: their nodes have so long to run."""
        self._start_by = self._silence.attended_s + limit_s, limit_s
        return []

    def _when_overdue(self) -> list[Instruction]:
        if self._start_by is None or self._silence.attended_s < self._start_by[0]:
            return []
        limit_s, self._start_by = self._start_by[1], None
        waits = self.state is RunState.STARTING and not self._starts_when_asked
        return [Overdue(limit_s)] if waits or self.state in (RunState.LAUNCHING, RunState.RESERVING) else []

    def tick(self, now_s: float, *, behind: bool = False) -> list[Instruction]:
        """Do what is due: lost nodes, errors without a better explanation, nodes that do not drain.

        ``behind`` says that at no moment since the last tick all messages had been handled that had arrived.
        """
        instructions = self._lose_gone(now_s)
        self._silence.tick(now_s, behind=behind)
        if self._silence.attended_s >= self._beats_at_s:
            self._beats_at_s = self._silence.attended_s + HEARTBEAT_S
            instructions.append(SendTo(tuple(range(self.size)), m.DriverHeartbeat()))
        for rank, silent_s in self._silence.longer_than(LOST_AFTER_S):
            instructions += self.lose(rank, f"not heard of for {silent_s:.0f} s", now_s)
        for node in self._nodes:
            if node.orphan is not None:
                instructions += self._end(node, node.orphan, now_s)
                instructions += self._when_drained(now_s)  # all may have drained while this one's end was not believed
        is_due = not self.state.is_ending and not self._may_be_explained()
        if is_due and (unexplained := self.causes.overdue(now_s)) is not None:
            instructions += self._fail_for(unexplained, now_s)
        instructions += self._when_overdue()
        if any(node.sends_output and node.view.state is NodeState.LOST for node in self._nodes):
            instructions += self._when_drained(now_s)
        patience_s = self._patience_s + DRAIN_TIMEOUT_S
        # A node may take longer for as long as it sends files or its log.
        silent_since_s = max(self._ended_s or 0.0, self._output_at_s)
        is_late = self._ended_s is not None and now_s - silent_since_s > patience_s
        if is_late or self._silence.attended_s > self._stop_by_s:
            instructions += self.give_up(now_s)
        return instructions

    def _may_be_explained(self) -> bool:
        """Whether the loss of a node may come soon, and be why others have failed."""
        silent = (self._nodes[rank] for rank, _ in self._silence.longer_than(SILENT_S))
        return self._expects_loss or any(not node.view.state.ended for node in silent)

    def give_up(self, now_s: float) -> list[Instruction]:
        """Wait for no node any longer, whatever was still to come."""
        if self._over:
            return []
        self.gave_up = True
        return self._conclude(RunState.DONE if self._finishing else _final(self.state), now_s)

    def expect_loss(self, patience_s: float = LEAVING_PATIENCE_S) -> None:
        """A node's executor has ended, which its loss will tell: nothing that follows from it becomes the cause."""
        self._leaving_until_s = max(self._leaving_until_s, self._silence.attended_s + patience_s)

    @property
    def _expects_loss(self) -> bool:
        is_gone = any(not self._nodes[rank].view.state.ended for rank in self._gone)
        return is_gone or self._silence.attended_s < self._leaving_until_s

    def disconnect(self, rank: int, now_s: float) -> list[Instruction]:
        """A node's connection has ended: nothing more comes from it."""
        self._connected.discard(rank)
        node = self._nodes[rank]
        if node.drained:
            return []
        # Spark may take seconds to say why an executor has ended, and the node's silence tells the rest.
        is_told = node.view.executor not in ("", THIS_MACHINE)
        return self._lose_gone(now_s) if is_told else self.lose_agent(rank, "", now_s)

    def lose_agent(self, rank: int, why: str, now_s: float) -> list[Instruction]:
        """A node's agent is gone: whoever has started it says why, its connection only that it is."""
        known, since_s = self._gone.get(rank, ("", now_s))
        self._gone[rank] = known or why, since_s
        return self._lose_gone(now_s)

    def _lose_gone(self, now_s: float) -> list[Instruction]:
        """Lose nodes whose agents are gone, in that order: each when all it has sent was read, and why is known.

        What does not come within a moment is not waited for.
        """
        instructions: list[Instruction] = []
        for rank, (why, since_s) in list(self._gone.items()):
            is_read = rank not in self._connected
            if not (is_read and why) and now_s - since_s <= _REASON_S:
                break
            del self._gone[rank]
            instructions += self.lose(rank, why or "its connection to the notebook has ended", now_s)
        return instructions

    def lose(self, rank: int, why: str, now_s: float) -> list[Instruction]:
        """A node has gone without reporting its end: its agent, its executor or its host is lost."""
        node = self._nodes[rank]
        if node.drained or node.view.state is NodeState.LOST:
            if self._earlier_loss is not None and self._earlier_loss[0].node == node.spec.node:
                # It has been silent for longer, and Spark ends the others only now.
                self._earlier_loss = self._earlier_loss[0], now_s
            return []
        self._leaving_until_s = 0.0
        had_ended = node.view.state.ended
        if pause_s := self._silence.pause_s(now_s):
            why += f"; the notebook's machine or kernel had not run for {pause_s:.0f} s"
        instructions = self._node_state(node, NodeState.LOST, now_s, detail=why)
        # Its agent may be alive but unreachable: then it has to leave.
        node.lost_s = now_s
        instructions.append(SendTo(rank, m.Stop(grace_s=0.0)))
        if not node.sends_output:
            instructions.append(SendTo(rank, m.Shutdown()))
        if not self.state.is_ending and not self._finishing:
            place = f" on {node.view.host}" if node.view.host else ""
            executor = f" (executor {node.view.executor})" if node.view.executor else ""
            failure = Failure(node.spec.node, "Lost", f"the node{place}{executor} is gone: {why}", gone=True)
            if had_ended:
                self._lose_early(node, failure, now_s)
            else:
                instructions += self._fail_for_lost(node, failure, now_s)
        return instructions + self._when_drained(now_s)

    def _fail_for_lost(self, node: ClusterNode, failure: Failure, now_s: float) -> list[Instruction]:
        if self._is_spared(node):
            self._lose_early(node, failure, now_s)
            return [_told(failure, now_s), *self._when_all_reserved(now_s), *self._when_all_started(now_s)]
        # Spark ends the tasks of all nodes if it loses that of one, even where nobody waits for that one any more: its
        # loss is why they are lost.
        first, lost_s = self._earlier_loss or (failure, now_s)
        cause = first if now_s - lost_s < _SPARK_ENDS_ALL_S else failure
        return self._fail(cause, now_s, consequence=False)

    def _lose_early(self, node: ClusterNode, failure: Failure, now_s: float) -> None:
        """Remember the first loss of a node that nobody waits for, in case Spark ends the others for it."""
        is_recent = self._earlier_loss is not None and now_s - self._earlier_loss[1] < _SPARK_ENDS_ALL_S
        if not is_recent and node.view.executor not in ("", THIS_MACHINE):
            self._earlier_loss = failure, now_s

    def refuse(self, rank: int, what: str, now_s: float) -> list[Instruction]:
        """A node has sent what no node sends: nothing more is taken from it, and it has failed unless it had ended."""
        node = self._nodes[rank]
        had_ended = node.view.state.ended
        node.drained, node.sends_output = True, False
        instructions: list[Instruction] = [SendTo(rank, m.Stop(grace_s=0.0)), SendTo(rank, m.Shutdown())]
        if not had_ended:
            text = f"{node.spec.node} sent what no node sends: {what}; it was refused"
            instructions += self._node_state(node, NodeState.FAILED, now_s, detail=text)
            if not self.state.is_ending:
                instructions += self._fail(Failure(node.spec.node, "Refused", text), now_s, consequence=False)
        return instructions + self._when_drained(now_s)

    def mark_hung(self, rank: int, text: str, now_s: float) -> list[Instruction]:
        """Say that a node hangs, or with an empty text that it goes on."""
        node = self._nodes[rank]
        is_news = bool(node.view.hung) != bool(text)
        node.view = replace(node.view, hung=text)
        return [Publish(NodeHung(time_s=now_s, node=node.spec.node, text=text))] if is_news else []

    # ---- helpers ----------------------------------------------------------------------------------------------------

    def _stop_nodes(self, grace_s: float, reason: str = "") -> list[Instruction]:
        stop = m.Stop(grace_s=grace_s, reason=reason)
        return [SendTo(node.spec.rank, stop) for node in self._nodes if not node.drained]

    def _node_state(self, node: ClusterNode, state: NodeState, now_s: float, detail: str = "") -> list[Instruction]:
        if state not in NODE_TRANSITIONS[node.view.state]:
            return []
        node.view = replace(node.view, state=state, detail=detail)
        return [Publish(NodeChanged(time_s=now_s, node=node.spec.node, state=state, detail=detail))]

    def _cluster_state(self, state: RunState, now_s: float) -> list[Instruction]:
        if state not in RUN_TRANSITIONS[self.state]:
            return []
        self.state = state
        return [Publish(StateChanged(time_s=now_s, state=state, reason=self.reason))]


def _told(failure: Failure, now_s: float) -> Publish:
    event = EvaluatorFailed(
        time_s=now_s, node=failure.node, kind=failure.kind, message=failure.message, traceback=failure.traceback
    )
    return Publish(event)


def _final(state: RunState) -> RunState:
    return state if state.is_settled else RunState.STOPPED
