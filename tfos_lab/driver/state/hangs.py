"""Which nodes hang: those that should work and show no sign of it, and not those that wait for them. Pure.

A node without a step, a row or a log line for too long is a suspect. All nodes that run are then asked for their
stacks, since a node that waits in a collective looks like the one it waits for. What they answer tells them apart.
Nodes that never read the rows which have come for them are another matter, at the end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tfos_lab.core import messages as m
from tfos_lab.core.messages import Condition
from tfos_lab.core.roles import role_of
from tfos_lab.core.states import NodeState
from tfos_lab.driver.state.cluster_state import ClusterState
from tfos_lab.driver.state.events import NodeView, Noted
from tfos_lab.driver.state.feed_state import FeedState, Untouched
from tfos_lab.driver.state.instructions import Failure, Instruction, Publish
from tfos_lab.driver.state.questions import Questions
from tfos_lab.texts import format_count

# A child has so long to answer; and so long where the cluster is about to fail for a cause that is not known yet.
_PATIENCE_S = 5.0
_SHORT_PATIENCE_S = 0.5
# What agents then need to find out about a child that does not answer.
_EXTRA_S = 2.0
# A process that does not answer is what others have failed for only if it has shown no sign for so long.
_SILENT_S = 5.0
# TensorFlow waits in it for all nodes of its cluster, and for ever.
_MEETS = "strategy (tfos_lab)"


@dataclass(frozen=True)
class Suspicion:
    """What is known of a node when it is to be told whether it hangs.

    ``missed`` are nodes that have returned, if it waits for them.
    """

    view: NodeView
    stacks: m.Stacks
    idle: bool
    expected: bool
    missed: tuple[str, ...] = ()


class Hangs:
    """Watches the nodes of one start: hung ones are marked, or fail the cluster (``fails``).

    A node may show no sign for ``timeout_s`` seconds; 0 for ever.
    """

    def __init__(
        self,
        cluster_state: ClusterState,
        feed_state: FeedState,
        questions: Questions,
        *,
        timeout_s: float,
        fails: bool,
    ) -> None:
        self._cluster_state = cluster_state
        self._feed_state = feed_state
        self._questions = questions
        self._timeout_s = timeout_s
        self._fails = fails
        self._asks = False
        self._next_s = 0.0
        self._explained = False

    def tick(self, now_s: float) -> list[Instruction]:
        """Ask nodes if some may hang; called often."""
        if self._asks:
            return []
        state = self._cluster_state
        if state.state.is_ending:
            return []
        if state.causes.has_unexplained and not self._explained:
            self._explained = True
            return self._ask(_SHORT_PATIENCE_S, now_s, explains=True)
        if not self._timeout_s:
            return []
        gone_on = self._clear(lambda view: not _is_idle(view, self._timeout_s), now_s)
        if now_s >= self._next_s and any(_is_idle(view, self._timeout_s) and _may_hang(view) for view in state.views):
            return [*gone_on, *self._ask(min(_PATIENCE_S, self._timeout_s), now_s)]
        return gone_on

    def _ask(self, patience_s: float, now_s: float, *, explains: bool = False) -> list[Instruction]:
        ranks = {rank for rank, view in enumerate(self._cluster_state.views) if _may_hang(view)}
        until_s = now_s + patience_s + _EXTRA_S
        if explains:
            self._cluster_state.causes.hold(until_s + _EXTRA_S)
        self._asks = True
        then = functools.partial(self._conclude, frozenset(ranks), explains=explains)
        return self._questions.ask(ranks, m.StacksWanted(request=0, patience_s=patience_s), until_s, then)

    def _conclude(
        self, asked: frozenset[int], answers: Mapping[int, m.Stacks], now_s: float, *, explains: bool
    ) -> list[Instruction]:
        self._asks = False
        self._next_s = now_s + self._timeout_s
        views = self._cluster_state.views
        training = [view for view in views if _trains(view)]
        has_begun = any(view.step is not None or view.rows > 0 or _steps(view) > 0 for view in training)
        with_rows = self._feed_state.with_rows
        done = (view.name for view in views if view.state is NodeState.DONE)
        returned = tuple(name for name in done if role_of(name).in_tf_cluster)
        suspicions = {}
        for rank in sorted(asked):
            if _may_hang(views[rank]):
                stacks = answers.get(rank) or m.Stacks(0, Condition.AWAY, "", rank=rank)
                missed = returned if stacks.call == _MEETS else ()
                expected = has_begun or views[rank].name in with_rows or bool(missed)
                idle = _is_idle(views[rank], self._timeout_s)
                suspicions[rank] = Suspicion(views[rank], stacks, idle, expected, missed)
        if explains:
            return self._explain(suspicions, now_s)
        hung = find_hung(suspicions)
        texts = {rank: self._text(suspicions[rank], with_rows) for rank in hung}
        if hung and self._fails:
            return self._fail(suspicions, texts, now_s)
        gone_on = self._clear(lambda view: view.name not in {views[rank].name for rank in hung}, now_s)
        return gone_on + [i for rank in hung for i in self._cluster_state.mark_hung(rank, texts[rank], now_s)]

    def _clear(self, has_gone_on: Callable[[NodeView], bool], now_s: float) -> list[Instruction]:
        return [
            instruction
            for rank, view in enumerate(self._cluster_state.views)
            if view.hung and has_gone_on(view)
            for instruction in self._cluster_state.mark_hung(rank, "", now_s)
        ]

    def _explain(self, suspicions: Mapping[int, Suspicion], now_s: float) -> list[Instruction]:
        """Name the process that does not answer, or that TensorFlow misses, as the cause of what others fail with."""
        causes = self._cluster_state.causes
        causes.hold(0.0)
        witness, silent = causes.silent_nodes
        deaf = [rank for rank, one in suspicions.items() if _is_silent(one, silent)]
        missed = [rank for rank, one in suspicions.items() if one.view.name in silent and rank not in deaf]
        texts = {rank: self._text(suspicions[rank], []) for rank in deaf}
        if not deaf:
            texts = {rank: _missed_text(suspicions[rank], witness) for rank in missed}
        return self._fail(suspicions, texts, now_s) if texts else []

    def _fail(self, suspicions: Mapping[int, Suspicion], texts: Mapping[int, str], now_s: float) -> list[Instruction]:
        marked = [i for rank, text in texts.items() for i in self._cluster_state.mark_hung(rank, text, now_s)]
        first, *others = texts
        also = ", ".join(suspicions[rank].view.name for rank in others)
        message = texts[first] + (f" (also hung: {also})" if also else "")
        one = suspicions[first]
        failure = Failure(one.view.name, "Hung", message, traceback=one.stacks.text, gone=True)
        return [*marked, *self._cluster_state.fail(failure, now_s)]

    def _text(self, one: Suspicion, with_rows: list[str]) -> str:
        if one.missed:
            missed = ", ".join(one.missed)
            return (
                f"it has waited in ctx.strategy() for {_idle_s(one):.0f} s for nodes that have returned without it: "
                f"{missed}. Call ctx.strategy() on each node"
            )
        sign = one.view.activity.last_sign if one.view.activity is not None else ""
        if not one.view.rows and one.view.name in with_rows:
            sign = f"{sign}; it has taken none of its rows"
        return f"no step, row or log line for {_idle_s(one):.0f} s; last: {sign}; {doing(one.stacks)}"


def find_hung(suspicions: Mapping[int, Suspicion]) -> list[int]:
    """Return the ranks of the nodes that hang, the first cause first.

    Those that do not even answer come first, then those that are in their own code. A node in TensorFlow may wait
    for any other: it hangs only if no other node explains it, and then the one that has come least far.
    """
    idle = {rank: one for rank, one in suspicions.items() if one.idle}
    deaf = [rank for rank, one in idle.items() if one.stacks.condition.is_deaf]
    working = {rank: one for rank, one in idle.items() if _is_expected(one)}
    busy = [rank for rank, one in working.items() if one.stacks.condition is Condition.BUSY]
    if deaf or busy:
        return [*deaf, *busy]
    conditions = {one.stacks.condition for one in suspicions.values() if _trains(one.view)}
    if conditions & {Condition.WAITS_FOR_ROWS, Condition.WAITS, Condition.AWAY}:
        return []
    inside = {rank: _steps(one.view) for rank, one in working.items()}
    least = min(inside.values(), default=0)
    return [rank for rank, steps in inside.items() if steps == least]


def _is_silent(one: Suspicion, named: list[str]) -> bool:
    """Whether a process does not answer, and has been silent for long enough to be what others have failed for."""
    return one.stacks.condition.is_deaf and (_idle_s(one) >= _SILENT_S or one.view.name in named)


def _is_expected(one: Suspicion) -> bool:
    """Whether a node is to show signs of work: it trains, and training has begun."""
    return _trains(one.view) and one.expected and one.stacks.condition in (Condition.BUSY, Condition.IN_TENSORFLOW)


def _trains(view: NodeView) -> bool:
    return view.state is NodeState.RUNNING and role_of(view.name).trains


def _is_idle(view: NodeView, timeout_s: float) -> bool:
    return view.activity is not None and view.activity.idle_s >= timeout_s


def _may_hang(view: NodeView) -> bool:
    return view.state in (NodeState.RUNNING, NodeState.SERVING)


def _steps(view: NodeView) -> int:
    counted = view.activity.step if view.activity is not None else None
    return max(counted or 0, view.step or 0)


def _idle_s(one: Suspicion) -> float:
    return one.view.activity.idle_s if one.view.activity is not None else 0.0


def _missed_text(one: Suspicion, witness: str) -> str:
    """Return a sentence on a node that TensorFlow calls silent, though its process is none that does not answer."""
    told = f"TensorFlow on {witness} has had no heartbeat of its process for too long"
    if one.stacks.condition is Condition.AWAY:
        return f"{told}, and its agent does not answer either: its host is cut off, or all of it stands still"
    return f"{told}; it answers again: it was stopped for a while, or its host was too busy; now {doing(one.stacks)}"


def doing(stacks: m.Stacks) -> str:
    """Return where a node is, as the end of a sentence."""
    call = f", in {stacks.call}" if stacks.call else ""
    where = f": it is at {stacks.place}{call}" if stacks.place else ""
    match stacks.condition:
        case Condition.STOPPED:
            return "its process is stopped (SIGSTOP)"
        case Condition.LOCKED:
            return f"its Python does not answer{where}"
        case Condition.IN_TENSORFLOW:
            return f"it waits inside TensorFlow{where}"
        case _:
            return where.removeprefix(": ") or "nobody knows where it is"


# ---- nodes that never read ------------------------------------------------------------------------------------------

# So long a child has to answer, and what its agent needs longer for one that does not.
_UNREAD_ANSWER_S = 2.5
_UNREAD_PATIENCE_S = 4.8


class UnreadWatch:
    """Finds nodes that never read: all rows of a feed have come, and a node that goes on takes none of its own.

    While rows do not fit the spool, such a node holds up the feed, which fails by its time-out. Here they fit, so that
    nothing would ever report it. The node is warned of after ``warn_s``, or half the feed's time-out where that is
    shorter; at that time-out, the run fails if it shows no sign of any other work. With 0, none is watched.
    """

    def __init__(
        self, cluster_state: ClusterState, feed_state: FeedState, questions: Questions, *, warn_s: float
    ) -> None:
        self._cluster_state = cluster_state
        self._feed_state = feed_state
        self._questions = questions
        self._warn_s = warn_s
        self._warned: set[int] = set()
        self._asks = False

    def tick(self, now_s: float) -> list[Instruction]:
        """Warn, or fail the run; called often."""
        if not self._warn_s or self._asks or self._cluster_state.state.is_ending:
            return []
        late = {rank: one for rank, one in self._feed_state.untouched.items() if self._is_late(rank, one, now_s)}
        for rank, one in late.items():
            if one.fails and now_s - one.since_s >= one.timeout_s and _is_idle(self._view(rank), one.timeout_s):
                return self._ask(rank, one, now_s)
        new = {rank: one for rank, one in late.items() if rank not in self._warned}
        self._warned.update(new)
        return [Publish(Noted(time_s=now_s, text=self._warning(rank, one, now_s))) for rank, one in new.items()]

    def _view(self, rank: int) -> NodeView:
        return self._cluster_state.view_of(rank)

    def _is_late(self, rank: int, one: Untouched, now_s: float) -> bool:
        runs = self._view(rank).state is NodeState.RUNNING
        return runs and now_s - one.since_s >= min(self._warn_s, one.timeout_s / 2)

    def _warning(self, rank: int, one: Untouched, now_s: float) -> str:
        return (
            f"{self._view(rank).name} has taken none of its {format_count(one.rows, 'row')}, which had all come "
            f"{now_s - one.since_s:.0f} s ago: see whether map_fun reads them there. After feed_timeout, "
            f"{one.timeout_s:g} s, the run fails unless the node shows that it works on something else"
        )

    def _ask(self, rank: int, one: Untouched, now_s: float) -> list[Instruction]:
        message = (
            f"it has taken none of its {format_count(one.rows, 'row')} for {now_s - one.since_s:.0f} s, though all "
            "have come; see whether map_fun reads them (ctx.dataset, ctx.data_feed), or raise feed_timeout (timeout "
            "of cluster.train)"
        )
        self._asks = True
        wanted = m.StacksWanted(request=0, patience_s=_UNREAD_ANSWER_S)
        then = functools.partial(self._fail, rank, message)
        return self._questions.ask({rank}, wanted, now_s + _UNREAD_PATIENCE_S, then)

    def _fail(self, rank: int, message: str, answers: Mapping[int, m.Stacks], now_s: float) -> list[Instruction]:
        self._asks = False
        view, stacks = self._view(rank), answers.get(rank)
        if view.rows or view.state is not NodeState.RUNNING:
            return []  # it has begun to read, or has ended, meanwhile
        where = f"; {doing(stacks)}" if stacks is not None else ""
        failure = Failure(view.name, "FeedTimeout", f"{message}{where}", traceback=stacks.text if stacks else "")
        return self._cluster_state.fail(failure, now_s)
