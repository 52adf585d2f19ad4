"""Nodes that never read: all rows of a feed have come, and a node that goes on takes none of its own. Pure.

While rows do not fit the spool, such a node holds up the feed, which fails by its time-out. Here they fit, so that
nothing would ever say so. The node is warned of first; at the feed's time-out, the run fails if it shows no sign of
any other work.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from tfos_lab.core import messages as m
from tfos_lab.core.states import NodeState
from tfos_lab.driver.state.cluster_state import ClusterState
from tfos_lab.driver.state.events import NodeView, Noted
from tfos_lab.driver.state.feed_state import FeedState, Untouched
from tfos_lab.driver.state.hangs import doing
from tfos_lab.driver.state.instructions import Failure, Instruction, Publish
from tfos_lab.driver.state.questions import Questions
from tfos_lab.texts import format_count

_ANSWER_S = 2.5
# An agent needs longer for a child that does not answer.
_PATIENCE_S = 4.8


class UnreadWatch:
    """Watches the rows of the nodes of one start.

    Parameters
    ----------
    cluster_state, feed_state : ClusterState, FeedState
        The nodes and their rows.
    questions : Questions
        What the nodes are asked.
    warn_s : float
        How long a node may take none of its rows before it is warned of, if the feed's time-out is not shorter still;
        0 to watch none.
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
            if one.fails and now_s - one.since_s >= one.timeout_s and _shows_nothing(self._view(rank), one.timeout_s):
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
        wanted = m.StacksWanted(request=0, patience_s=_ANSWER_S)
        then = functools.partial(self._fail, rank, message)
        return self._questions.ask({rank}, wanted, now_s + _PATIENCE_S, then)

    def _fail(self, rank: int, message: str, answers: Mapping[int, m.Stacks], now_s: float) -> list[Instruction]:
        self._asks = False
        view, stacks = self._view(rank), answers.get(rank)
        if view.rows or view.state is not NodeState.RUNNING:
            return []  # it has begun to read, or has ended, meanwhile
        where = f"; {doing(stacks)}" if stacks is not None else ""
        failure = Failure(view.name, "FeedTimeout", f"{message}{where}", traceback=stacks.text if stacks else "")
        return self._cluster_state.fail(failure, now_s)


def _shows_nothing(view: NodeView, timeout_s: float) -> bool:
    return view.activity is not None and view.activity.idle_s >= timeout_s
