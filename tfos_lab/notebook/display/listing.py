"""Which nodes have a row: all of up to `MANY_NODES`, or those that need attention, the chief, and some of each state.

A page, a saved cell and a text never get a row for each of thousands of nodes. Pure.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tfos_lab.core.states import NodeState
from tfos_lab.driver.state.events import ClusterView, NodeView
from tfos_lab.notebook.display.summary import hangs
from tfos_lab.texts import format_count

MANY_NODES = 64
# Rows of nodes that need attention, and of others of each state.
MAX_WORST = 16
MAX_MEMBERS = 12


@dataclass(frozen=True)
class Group:
    """The nodes of one state, which is ``hangs`` for those that hang.

    ``troubled`` of them need attention; ``facts`` tell how far they are, as in ``"2 stragglers · step 41 to 45"``;
    ``nodes`` have a row below it: the least far of those that have none on top.
    """

    state: str
    count: int
    troubled: int
    facts: str
    nodes: list[NodeView]


@dataclass(frozen=True)
class Listed:
    """The nodes that have a row: those on ``top``, and the rest in groups, if not all have a row on top.

    What needs attention and has no row is told by ``more``, in a sentence.
    """

    top: Sequence[NodeView]
    groups: list[Group] = field(default_factory=list)
    more: str = ""

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """All nodes that have a row."""
        return (*self.top, *(node for group in self.groups for node in group.nodes))


def listed(view: ClusterView) -> Listed:
    """Return the nodes that have a row."""
    if not is_large(view):
        return Listed(view.nodes)
    troubled = ((bad, place) for place, node in enumerate(view.nodes) if (bad := severity(node)) is not None)
    worst = [view.nodes[place] for _, place in heapq.nsmallest(MAX_WORST, troubled)]
    top = [*worst, *(node for node in view.nodes if node.is_chief and node not in worst)]
    names = {node.name for node in top}
    by_state: dict[str, list[NodeView]] = {}
    for node in view.nodes:
        by_state.setdefault("hangs" if hangs(node) else node.state.value, []).append(node)
    groups = [_group(state, nodes, names) for state, nodes in by_state.items()]
    left = sum(group.troubled for group in groups) - len(worst)
    more = f"{left:,} more {'needs' if left == 1 else 'need'} attention" if left else ""
    return Listed(top, sorted(groups, key=lambda group: (-group.troubled, -group.count)), more)


def _group(state: str, nodes: Sequence[NodeView], above: set[str]) -> Group:
    rest = [node for node in nodes if node.name not in above]
    shown = heapq.nsmallest(MAX_MEMBERS, rest, key=lambda node: node.step or 0)
    steps = [node.step for node in nodes if node.step is not None]
    low, high = min(steps, default=0), max(steps, default=0)
    slow = sum(_slower(node) > 0 for node in nodes)
    facts = [
        format_count(slow, "straggler") if slow else "",
        f"step {low:,}" + (f" to {high:,}" if low != high else "") if steps else "",
        f"listed are the {len(shown)} that are least far" if len(shown) < len(rest) else "",
    ]
    troubled = sum(severity(node) is not None for node in nodes)
    return Group(state, len(nodes), troubled, " · ".join(filter(None, facts)), shown)


def is_large(view: ClusterView) -> bool:
    """Whether not all nodes have a row; independent runs come in an order of their own."""
    return len(view.nodes) > MANY_NODES and not view.of_runs


def only_notable(view: ClusterView) -> ClusterView:
    """Return a large cluster with the nodes that a saved cell lists, and a note on the others."""
    if not is_large(view):
        return view
    states = Counter(node.state.value for node in view.nodes)
    told = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
    note = f"{len(view.nodes):,} nodes: {told}; listed are the chief, and nodes that failed, hang or are slow"
    return replace(view, nodes=tuple(listed(view).top), notes=(*view.notes, note))


def severity(node: NodeView) -> float | None:
    """Return how much a node needs attention, the least number most; None where all is well."""
    if node.state.is_broken:
        return 0.0 if node.state is NodeState.FAILED else 1.0
    if hangs(node):
        return 2.0
    return 3.0 + 1.0 / _slower(node) if _slower(node) else None


def _slower(node: NodeView) -> float:
    return (node.activity.slower or 0.0) if node.activity is not None else 0.0
