"""Who holds up a feed that does not move: the nodes that leave rows where they are, and the first that is stuck."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfos_lab import messages as m
from tfos_lab.core.states import NodeState
from tfos_lab.engine.state.hangs import Suspicion, doing, find_hung
from tfos_lab.messages import Condition

if TYPE_CHECKING:
    from tfos_lab.engine.feed.fed_cluster import FedGeneration
    from tfos_lab.engine.state.events import NodeView

# How long nodes have to say where they are.
_STACKS_S = 2.0
# An agent sends a heartbeat each second.
_QUIET_S = 3.0


@dataclass(frozen=True)
class Stuck:
    """Why no row moves: sentences, and the node that is stuck with its stacks, where one is known to be."""

    text: str = ""
    node: str = ""
    stacks: str = ""


def find_stuck(generation: FedGeneration) -> Stuck:
    """Ask nodes for their stacks where some leave rows where they are, and return what follows from them."""
    with generation.server.lock:
        views, with_rows = list(generation.cluster_state.views), generation.feed_state.with_rows
    ranks = {rank for rank, view in enumerate(views) if view.state is NodeState.RUNNING}
    answers = generation.server.stacks.answers(ranks, _STACKS_S) if with_rows and ranks else {}
    suspicions = {
        rank: Suspicion(
            views[rank],
            answers.get(rank) or m.Stacks(rank, 0, Condition.AWAY, ""),
            idle=views[rank].node in with_rows,
            expected=True,
        )
        for rank in ranks
    }
    stuck = [suspicions[rank] for rank in find_hung(suspicions)]
    hung = [f"{view.node} hangs: {view.hung}" for view in views if view.hung]
    doings = hung or [f"{one.view.node} takes none: {doing(one.stacks)}" for one in stuck]
    told = [_holders(views, with_rows), *doings, unheard(views, time.time())]
    text = "".join(f". {sentence}" for sentence in told if sentence)
    return Stuck(text, stuck[0].view.node, stuck[0].stacks.text) if stuck else Stuck(text)


def _holders(views: Sequence[NodeView], with_rows: Sequence[str]) -> str:
    holding = [f"{view.node} (has taken {view.rows:,})" for view in views if view.node in with_rows]
    return f"Rows wait for {', '.join(holding)}" if holding else ""


def unheard(views: Sequence[NodeView], now_s: float) -> str:
    """Return a sentence on nodes whose agents have sent no heartbeat for some seconds; "" if there is none."""
    silent = {
        view.node: now_s - view.last_heartbeat_s
        for view in views
        if view.state.is_present and view.last_heartbeat_s is not None and now_s - view.last_heartbeat_s > _QUIET_S
    }
    return "; ".join(f"{node} has not been heard of for {silent_s:.0f} s" for node, silent_s in silent.items())
