"""Where the threads of nodes are: asked of the nodes that have a process, and told for all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from tfos_lab.core import messages as m
from tfos_lab.core.states import NodeState
from tfos_lab.driver.state.events import NodeView, rank_of

if TYPE_CHECKING:
    from tfos_lab.driver.head import Head

# A child answers at once, or its agent asks it with a signal after this share of the time.
_SIGNAL_AFTER = 0.4
_LONGEST_PATIENCE_S = 2.0


def ask_for_stacks(head: Head, ranks: AbstractSet[int], timeout_s: float) -> dict[int, m.Stacks]:
    """Ask nodes for their stacks, and return what those say that answer in time, by rank."""
    wanted = m.StacksWanted(request=0, patience_s=min(_LONGEST_PATIENCE_S, timeout_s * _SIGNAL_AFTER))
    return head.ask(ranks, wanted, timeout_s)


def stacks_of(head: Head, views: Sequence[NodeView], node: str | None, timeout_s: float) -> dict[str, str]:
    """Return the stacks of a node, or of all, as text by name, or why there are none; KeyError for no such node."""
    chosen = [rank_of(views, node)] if node is not None else list(range(len(views)))
    asked_s = time.monotonic()
    answers = ask_for_stacks(head, {rank for rank in chosen if _has_process(views[rank])}, timeout_s)
    waited_s = time.monotonic() - asked_s
    return {views[rank].name: _text(views[rank], answers.get(rank), waited_s) for rank in chosen}


def _has_process(view: NodeView) -> bool:
    return not view.state.ended and view.state is not NodeState.WAITING


def _text(view: NodeView, answer: m.Stacks | None, waited_s: float) -> str:
    if answer is not None:
        return answer.text
    if not _has_process(view):
        return f"it has no process: its state is {view.state}"
    return f"its agent has not answered within {waited_s:.1f} s"
