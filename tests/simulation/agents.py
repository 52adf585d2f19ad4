"""Modelled nodes: an agent and its child, as `tfos_lab.node` has them, without processes, sockets and disks.

What they send, and when, follows `tfos_lab.node.agent` and `tfos_lab.node.child_supervisor`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.reading import Reader, Spool
from tests.simulation.world import Host, Link
from tfos_lab.core import messages as m
from tfos_lab.core.launchers import THIS_MACHINE
from tfos_lab.core.link import UNREACHABLE_S
from tfos_lab.core.roles import NodeSpec
from tfos_lab.node.driver_link import GAVE_UP, HEARTBEAT_S, HUNG, HUNG_AFTER_S

if TYPE_CHECKING:
    from tests.simulation.run import Run

PS_PATIENCE_S = 1.0
LAST_GRACE_S = 5.0
DRIVER_TIMEOUT_S = 600.0
# A child whose agent is stopped for so long ends, and takes the agent with it.
CHILD_WATCHES_S = 7.0

_STOPPED = m.Outcome(kind="stopped")
_KILLED = m.Outcome(kind="exited", exit_code=-9)


class Agent:
    """One node: the agent, and the child that it has.

    ``is_there`` says whether the agent's process is, and ``stands`` why it does nothing nevertheless: ``"stopped"``,
    ``"hangs"``, or "" if it works. ``has_ended`` says whether the function's end has been reported, and ``holds_slot``
    whether the Spark task that has started it waits for its end. Its function listens at ``address``. It has heard
    nothing of the driver for ``silent_s`` at most, reserved at ``began_s``, and ended at ``left_s``; ``why`` it did.
    """

    def __init__(self, run: Run, head_number: int, spec: NodeSpec, host: Host, executor: str) -> None:
        self.run, self.world, self.spec, self.host, self.executor = run, run.world, spec, host, executor
        self.rank, self.name, self.head_number = spec.rank, spec.node, head_number
        self.pid = run.next_pid()
        self.identity = f"{spec.node}/{self.pid}".encode()
        self.is_there, self.stands, self.has_ended = False, "", False
        self.holds_slot = bool(executor)
        self.address = f"{host.name}:{self.pid}"
        self.silent_s = self.began_s = self.left_s = self._stands_since_s = 0.0
        self.why = ""
        self.child: Child | None = None
        self.spool = Spool()
        self._start: m.Start | None = None
        self._waiting: list[m.ToAgent] = []
        self._may_start_again = self._starts_again = self._is_stopping = False
        self._exited = self._is_leaving = self._has_drained = False
        self._held: deque[Callable[[], None]] = deque()
        self._heard_s: float | None = None
        self._link = Link(self.world, host, lambda data: run.to_driver(self, data))
        self.receive = Link(self.world, host, self._on_data).send

    # ---- the loop ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Reserve, and send signs of life from now on."""
        self.is_there = self.run.is_launching(self)
        if self.is_there:
            self.world.tell(self.name, f"agent {self.pid} reserves")
            self.began_s = self.world.now_s
            self.send(self._reservation())
            self._fork()
            self._beat()

    def send(self, message: m.FromAgent) -> None:
        """Send to the driver."""
        if type(message) not in (m.Heartbeat, m.Activity, m.Reported):
            self.world.tell(self.name, message)
        self._link.send((self.identity, m.encode(message)))

    def _beat(self) -> None:
        if not self.is_there:
            return
        self.world.at(HEARTBEAT_S, self._beat)
        if self.stands == "stopped":
            return
        if self.stands and self.world.now_s - self._stands_since_s > HUNG_AFTER_S:
            self.go(HUNG, "hangs for good")
            return
        self._send_signs()
        silent_s = self.world.now_s - (self._heard_s or self.began_s)
        self.silent_s = max(self.silent_s, silent_s)
        if silent_s > DRIVER_TIMEOUT_S or (silent_s > UNREACHABLE_S and not self.run.is_reachable(self)):
            self.go(GAVE_UP, "gives up")

    def _reservation(self) -> m.Reserve:
        return m.Reserve(self.host.name, self.address, self.pid, self.executor or THIS_MACHINE, [], rank=self.rank)

    def _send_signs(self) -> None:
        child = self.child
        heartbeat = m.Heartbeat(spooled_bytes=self.spool.size)
        if child is None or not child.runs or self.stands:
            self.send(heartbeat)
            return
        idle_s = self.world.now_s - child.worked_s
        activity = m.Activity(m.NodeActivity(idle_s=idle_s, last_sign="step 1"))
        for message in (heartbeat, activity, *child.figures()):
            self.send(message)

    def _do(self, act: Callable[[], None]) -> None:
        """Do something in the loop: now, or when it works again."""
        if self.stands:
            self._held.append(act)
        elif self.is_there:
            act()

    def _after(self, delay_s: float, act: Callable[[], None]) -> None:
        self.world.at(delay_s, self._do, act)

    # ---- the driver's messages --------------------------------------------------------------------------------------

    def _on_data(self, data: bytes) -> None:
        self._do(lambda: self._receive(data))

    def _receive(self, data: bytes) -> None:  # noqa: C901, PLR0912 - one function for all messages
        if not data:
            self.go(0, "was hung up on")
            return
        self._heard_s = self.world.now_s
        message = m.decode_to_agent(data)
        if not isinstance(message, m.DriverHeartbeat):
            self.world.tell(self.name, ("got", message))
        match message:
            case m.DriverHeartbeat():
                pass
            case m.Start():
                self.run.seen.started.append((self, message.cluster_spec))
                if self._start is None and not self.has_ended:
                    self._start = message
                    self._start_child()
            case m.StartAgain():
                if self._may_start_again:
                    self._starts_again = True
                    self._replace()
            case m.Stop(grace_s=grace_s):
                self._stop(grace_s)
            case m.Finish(grace_s=grace_s):
                self._finish(grace_s)
            case m.Shutdown():
                self.go(0, "leaves")
            case m.FreeSlot():
                self.holds_slot = False
            case m.StacksWanted():
                self._answer(message)
            case m.FeedOpen():
                self.send(m.FeedReady(feed=message.feed, locations=[str(self.pid)]))
                self._pass_on(message)
            case m.Commit():
                self._pass_on(self.spool.commit(message))
            case m.FeedComplete(feed=feed) | m.FeedAborted(feed=feed):
                self.spool.drop(feed)
                self._pass_on(message)
            case m.FeedsEnded() | m.EpochPlan() | m.PlanLater() | m.PeerReturned():
                self._pass_on(message)

    def _pass_on(self, message: Any) -> None:
        self._waiting.append(message)
        if self.child is not None and self.child.is_forked and self._start is not None:
            self.child.take(message)

    def _answer(self, wanted: m.StacksWanted) -> None:
        child = self.child
        if child is None or not child.runs:
            condition, after_s = m.Condition.AWAY, 0.0
        elif child.is_stopped:
            condition, after_s = m.Condition.STOPPED, wanted.patience_s + 0.5
        else:
            condition, after_s = child.condition, self.world.between(0.01, 0.2)
        self._after(after_s, lambda: self.send(m.Stacks(wanted.request, condition, "")))

    # ---- the child --------------------------------------------------------------------------------------------------

    def _fork(self) -> None:
        self._exited = self._starts_again = self.has_ended = False
        self.run.note_child(self)
        self.child = Child(self)
        self._child_after(self.world.between(0.05, 0.5), self._forked)

    def _child_after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Do something for this very child, if it is there by then."""
        child = self.child

        def do() -> None:
            if self.child is child is not None:
                self._do(act)

        self.world.at(delay_s, do)

    def _forked(self) -> None:
        if self.child is not None:
            self.child.is_forked = True
            if self._start is not None:
                self._start_child()

    def _start_child(self) -> None:
        """Have the child begin, now or when it has been forked."""
        if self.child is None or not self.child.is_forked:
            self.send(m.Progressed(state="importing"))
            return
        self.send(m.Progressed(state="starting", pid=self.pid))
        self.child.start_in(self.world.between(0.05, 1.5))
        for message in self._waiting:
            self.child.take(message)

    def child_says(self, message: m.FromAgent) -> None:
        """The child has sent something, which the agent passes on."""
        child = self.child

        def pass_on() -> None:
            if isinstance(message, m.Ended):
                self._report(message.outcome)
                return
            if isinstance(message, m.Progressed) and message.state == "serving" and self.child is child:
                self._may_start_again = not self._is_stopping
            self.send(message)

        self._do(pass_on)

    def _report(self, outcome: m.Outcome) -> None:
        if not self.has_ended:
            self.has_ended = True
            self.send(m.Ended(outcome=outcome))

    def child_ends(self, outcome: m.Outcome) -> bool:
        """End the child, if there is one; return whether its function was still at work."""
        child = self.child
        if child is None:
            return False
        self.child = None
        is_early = not child.has_ended
        if self._is_stopping and outcome.kind == "exited":
            outcome = _STOPPED
        self.world.tell(self.name, f"child ends: {outcome.kind}")
        self.run.note_child_gone(self, outcome, is_early=is_early and self._start is not None)
        self._do(lambda: self._on_exit(outcome))
        return is_early

    def _on_exit(self, outcome: m.Outcome) -> None:
        self._exited = True
        self._report(outcome)
        self._replace()
        self._after(self.world.between(0.03, 0.2), self._drain)  # the rest of its output is read

    def _replace(self) -> None:
        """Have another child in the place of one that is gone, or is to go, and served others."""
        if self._starts_again and self.child is not None:
            self.child_ends(_KILLED)
        elif self._starts_again and self._exited:
            self._after(self.world.between(0.01, 0.2), lambda: self._fork() if self._starts_again else None)

    def _stop(self, grace_s: float) -> None:
        has_child = self.child is not None and not self._starts_again
        self.has_ended = self.has_ended and not self._starts_again
        self._may_start_again = self._starts_again = False
        if not has_child:
            self._report(_STOPPED)
            self._exited = True
            self._drain()
            return
        self._is_stopping = True
        self._child_after(self.world.between(0.005, grace_s + 0.05), lambda: self.child_ends(_STOPPED) and None)

    def _finish(self, grace_s: float) -> None:
        if self.child is None or self._starts_again or self._start is None:
            self._stop(grace_s)
            return
        self._may_start_again = False
        if self.has_ended:
            self._child_after(self.world.between(0.01, max(grace_s, 1.0)), lambda: self.child_ends(_STOPPED) and None)
        else:
            patience_s = min(grace_s, PS_PATIENCE_S) if self.spec.role.serves else grace_s
            self._child_after(self.world.between(0.0, patience_s), lambda: self._stop(LAST_GRACE_S))

    # ---- leaving ----------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        is_over = self._exited and self.child is None and not self._may_start_again
        if self.is_there and not self._is_leaving and is_over and not self._has_drained:
            self._has_drained = True
            self.send(m.Drained())

    def go(self, code: int, why: str) -> None:
        """End the agent, and with it the child."""
        if not self.is_there:
            return
        self.world.tell(self.name, f"agent {self.pid} {why} (code {code})")
        self.is_there, self.stands = False, ""
        self.left_s, self.why = self.world.now_s, why
        self._link.send((self.identity, None))
        if self.child is not None:
            # The child follows its agent at once, or as soon as its fork server sees that it is gone.
            self.world.at(self.world.between(0.0, 0.2), self.child_ends, _KILLED)
        self.run.on_agent_end(self, code)

    def ask_to_leave(self) -> None:
        """Whoever has started it wants it to end: one that is stopped goes on for that, one that hangs when it can."""
        after_s = self.world.between(0.05, 0.5)
        if self.stands == "stopped":
            self.world.at(after_s, self.go, 0, "was asked to leave")
        else:
            self._after(after_s, lambda: self.go(0, "was asked to leave"))

    def hang_up(self) -> None:
        """The driver ends the connection, or has ended itself; what was sent before comes before that."""
        self.receive(b"")

    def on_executor_gone(self) -> None:
        """The executor has ended: the driver is told, and the node ends."""

        def leave() -> None:
            self._is_leaving = True
            self.send(m.ExecutorGone())
            self._after(self.world.between(0.01, 1.0), lambda: self.go(0, "ends with its executor"))

        # Fork servers end with the executor, too, and their children with them; the agent may see that first.
        if self.world.rng.random() < 0.5:
            orphaned = m.Outcome(kind="exited", exit_code=-9, orphaned=True)
            self.world.at(self.world.between(0.0, 0.1), self.child_ends, orphaned)
        self._after(self.world.between(0.0, 0.02), leave)
        if self.stands == "stopped":
            self.world.at(CHILD_WATCHES_S, self.go, -9, "is killed")

    # ---- faults -----------------------------------------------------------------------------------------------------

    def stand(self, how: str, for_s: float) -> None:
        """Do nothing for a while: ``"stopped"``, or ``"hangs"``, while signs of life are sent."""
        self.stands, self._stands_since_s = how, self.world.now_s
        self.world.at(for_s, self._go_on, how)
        if how == "stopped" and for_s > CHILD_WATCHES_S:
            self.world.at(CHILD_WATCHES_S + self.world.between(0.0, 1.0), self._child_leaves)

    def _child_leaves(self) -> None:
        """The child sees that its agent is stopped: it ends, and has the agent go on and leave."""
        if self.stands == "stopped" and self.child is not None and not self.child.is_stopped:
            self.child_ends(_KILLED)
            self.world.at(0.1, self._go_on, "stopped")
            self.world.at(self.world.between(0.1, 0.5), self.go, 0, "was ended by its child")

    def _go_on(self, how: str) -> None:
        if self.stands != how or not self.is_there:
            return
        self.world.tell(self.name, "agent goes on")
        self.stands = ""
        held, self._held = self._held, deque()
        for act in held:
            self._do(act)
        if self.is_there:
            self._send_signs()


class Child:
    """The process of the user's function: it trains, serves or evaluates, and takes rows if it is fed.

    ``is_forked`` says whether the process is there, ``runs`` whether the function has begun, ``has_ended`` whether it
    has returned or raised, and ``waits_for_ever`` whether it waits for a peer that is gone.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent, self.world = agent, agent.world
        self.is_forked = self.runs = self.has_ended = self.is_stopped = self.waits_for_ever = False
        self.worked_s = 0.0
        self._is_done = False
        self._fails_with: m.Outcome | None = None
        self._reader = Reader() if agent.run.plan.partitions and self.is_fed else None
        self._held: list[Callable[[], None]] = []

    @property
    def serves(self) -> bool:
        """Whether it only serves others: with parameter servers, all do but the chief and the evaluator."""
        return bool(self.agent.run.plan.ps) and self.agent.spec.job_name in ("ps", "worker")

    @property
    def is_fed(self) -> bool:
        """Whether it takes rows, if there are any."""
        return self.agent.spec.role.trains and not self.serves

    @property
    def trains(self) -> bool:
        """Whether it works in step with others, and returns."""
        return self.agent.spec.role.trains and not self.serves

    @property
    def condition(self) -> m.Condition:
        """What it is doing."""
        if self.waits_for_ever:
            return m.Condition.IN_TENSORFLOW
        if self._reader is not None and not self._reader.is_done:
            return m.Condition.WAITS_FOR_ROWS
        return m.Condition.WAITS if self.serves else m.Condition.IN_TENSORFLOW

    def _after(self, delay_s: float, act: Callable[[], None]) -> None:
        self.world.at(delay_s, self._do, act)

    def _do(self, act: Callable[[], None]) -> None:
        if self.agent.child is not self:
            return
        if self.is_stopped:
            self._held.append(act)
        else:
            act()

    def start_in(self, delay_s: float) -> None:
        self._after(delay_s, self._begin)

    def _begin(self) -> None:
        self.runs, self.worked_s = True, self.world.now_s
        self.agent.child_says(m.Progressed(state="running", pid=self.agent.pid))
        if self.serves:
            self.agent.child_says(m.Progressed(state="serving", pid=self.agent.pid))
        if not self.trains:
            return
        if self._fails_with is not None:
            self._after(self.world.between(0.0, 1.0), self._fail)
        self._work()
        if self._reader is None:
            self._after(self.world.between(0.1, self.agent.run.plan.works_s), self.returns)
            return
        # Some look for rows only when all have come.
        self._after(self.world.rng.choice((0.0, 0.0, self.world.between(0.0, 4.0))), self._open)

    def _open(self) -> None:
        assert self._reader is not None
        for message in self._reader.open():
            self.agent.child_says(message)
        self._read()

    def _work(self) -> None:
        """Take steps, as long as no peer is missing."""
        if not self.has_ended and not self.waits_for_ever:
            self.worked_s = self.world.now_s
            self._after(1.0, self._work)

    def take(self, message: Any) -> None:
        """A message of the agent."""
        if self._reader is not None:
            self._do(lambda: self._on_message(message))

    def _on_message(self, message: Any) -> None:
        assert self._reader is not None
        self._reader.take(message)
        if self.runs:
            self._read()

    def _read(self) -> None:
        reader = self._reader
        if reader is None or self.has_ended:
            return
        if reader.aborted:
            self.ends(m.Outcome(kind="raised", error="FeedError", message=reader.aborted))
        elif reader.is_done and not self._is_done:
            self._is_done = True
            self._after(self.world.between(0.05, 1.0), self._has_read)

    def _has_read(self) -> None:
        assert self._reader is not None
        if not self.has_ended and not self.waits_for_ever:
            self.agent.child_says(self._reader.taken())
            self.agent.run.note_rows(self.agent, self._reader)
            self.returns()

    def stop_reading(self) -> None:
        """Want no more rows, and return."""
        if self.trains and self.runs and not self.has_ended:
            self.agent.child_says(m.FeedStopped())
            self._after(self.world.between(0.05, 0.5), self.returns)

    def figures(self) -> list[m.RowsTaken]:
        """Return what it has taken."""
        return [self._reader.taken()] if self._reader is not None and self._reader.taken().rows else []

    def returns(self) -> None:
        """Return, unless it waits for a peer."""
        if not self.waits_for_ever:
            self.ends(m.Outcome(kind="returned", value=b"\xc0"))

    def ends(self, outcome: m.Outcome) -> bool:
        """The function ends, while the process stays; return whether it was still at work."""
        if self.has_ended or self.agent.child is not self or self.is_stopped:
            return False
        self.has_ended = True
        self.agent.child_says(m.Ended(outcome=outcome))
        if outcome.kind != "returned" and not outcome.consequence:
            self.agent.run.trouble(self.agent)
        return True

    def stop(self, for_s: float) -> None:
        """Be stopped for a while."""
        self.is_stopped = True
        self.world.at(for_s, self.go_on)

    def go_on(self) -> None:
        if self.agent.child is self:
            self.is_stopped = False
            held, self._held = self._held, []
            for act in held:
                self._do(act)

    def misses(self, peer: Agent, silent: bool) -> None:
        """A peer is gone: fail for it, or wait for ever."""
        if self.has_ended or not self.trains or self.agent.child is not self:
            return
        self.waits_for_ever = True
        text = "the connection to a peer was closed"
        if silent:
            job, _, index = peer.name.partition(":")
            text = f"The following tasks are unhealthy (stopped sending heartbeats):\n/job:{job}/replica:0/task:{index}"
        outcome = m.Outcome(kind="raised", error="UnavailableError", message=text, consequence=True)
        if self.world.rng.random() < self.agent.run.plan.peers_notice:
            self._fails_with = outcome
            if self.runs:
                self._after(self.world.between(0.0, 1.0), self._fail)

    def _fail(self) -> None:
        if self._fails_with is not None:
            self.ends(self._fails_with)
