"""Which nodes have a row: all of up to `MANY_NODES`, or those that need attention, the chief, and of opened groups.

A page, a saved cell and a text never get a row for each of thousands of nodes. Pure, but for what the reader of a page
has chosen (`Listing`).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tfos_lab.core.states import NodeState
from tfos_lab.driver.state.events import ClusterView, NodeView
from tfos_lab.notebook.display.summary import hangs
from tfos_lab.texts import format_count

MANY_NODES = 64
# Rows of nodes that need attention, and of each opened group; groups that are listed, and that may be open at a time.
MAX_WORST = 16
MAX_MEMBERS = 24
MAX_GROUPS = 16
MAX_OPEN = 4

_KEYS: dict[str, Callable[[NodeView], str]] = {
    "state": lambda node: "hangs" if hangs(node) else node.state.value,
    "role": lambda node: node.job_name,
    "host": lambda node: node.host or "no host yet",
}
GROUPINGS = tuple(_KEYS)


@dataclass
class Group:
    """Nodes that have something in common, such as their state.

    Attributes
    ----------
    key : str
        What they have in common.
    nodes : list of NodeView
        The nodes, the worst first where it is open.
    troubled : int
        How many of them need attention.
    is_open : bool
        Whether the first of them are listed.
    """

    key: str
    nodes: list[NodeView] = field(default_factory=list)
    troubled: int = 0
    is_open: bool = False

    @property
    def shown(self) -> list[NodeView]:
        """The nodes that have a row below it."""
        return self.nodes[:MAX_MEMBERS] if self.is_open else []

    @property
    def facts(self) -> str:
        """How its nodes are, and how far: ``"4,094 running, 1 lost · step 41 to 45"``."""
        states = Counter(_KEYS["state"](node) for node in self.nodes)
        told = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
        slow = sum(_slower(node) > 0 for node in self.nodes)
        steps = sorted(node.step for node in self.nodes if node.step is not None)
        between = (
            f"{steps[0]:,} to {steps[-1]:,}" if steps and steps[0] != steps[-1] else f"{steps[0]:,}" if steps else ""
        )
        hidden = len(self.nodes) - len(self.shown)
        parts = [
            told if len(states) > 1 else "",
            format_count(slow, "straggler") if slow else "",
            f"step {between}" if between else "",
            f"the {len(self.shown)} worst are listed" if self.is_open and hidden else "",
        ]
        return " · ".join(part for part in parts if part)


@dataclass(frozen=True)
class Listed:
    """What a page shows of the nodes.

    Attributes
    ----------
    rows : list of (NodeView, str)
        Nodes that have a row, each with the key of its group, or "" for those on top.
    groups : list of Group
        The groups; none where all nodes have a row.
    more : str
        What is not listed at all, as a sentence; or "".
    """

    rows: list[tuple[NodeView, str]]
    groups: list[Group] = field(default_factory=list)
    more: str = ""

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """Nodes that have a row, each once."""
        return tuple({node.name: node for node, _ in self.rows}.values())


class Listing:
    """What the readers of one display have chosen to see of a large cluster.

    Attributes
    ----------
    grouping : str
        What nodes are grouped by: one of `GROUPINGS`.
    """

    def __init__(self) -> None:
        self.grouping = GROUPINGS[0]
        self._open: dict[str, None] = {}

    def group_by(self, grouping: str) -> None:
        """Group by something else."""
        if grouping in GROUPINGS and grouping != self.grouping:
            self.grouping = grouping
            self._open.clear()

    def set_open(self, key: str, *, is_open: bool) -> None:
        """Open a group, or close it; where too many are open, the one that was opened first is closed."""
        self._open.pop(key, None)
        if is_open:
            self._open[key] = None
            while len(self._open) > MAX_OPEN:
                del self._open[next(iter(self._open))]

    def of(self, view: ClusterView) -> Listed:
        """Return what is shown of a cluster."""
        if not is_large(view):
            return Listed([(node, "") for node in view.nodes])
        top = worst(view.nodes, MAX_WORST)
        troubled = sum(severity(node) is not None for node in view.nodes)
        chief = [node for node in view.nodes if node.is_chief and node not in top]
        groups = self._groups(view.nodes)
        above = {node.name for node in (*top, *chief)}
        rows = [(node, "") for node in (*top, *chief)]
        for group in groups[:MAX_GROUPS]:
            rows += [(node, group.key) for node in group.shown if node.name not in above]
        return Listed(rows, groups[:MAX_GROUPS], _more(troubled - len(top), groups[MAX_GROUPS:], self.grouping))

    def _groups(self, nodes: Sequence[NodeView]) -> list[Group]:
        key_of = _KEYS[self.grouping]
        groups: dict[str, Group] = {}
        for node in nodes:
            key = key_of(node)
            if (group := groups.get(key)) is None:
                group = groups[key] = Group(key)
            group.nodes.append(node)
            group.troubled += severity(node) is not None
        for group in groups.values():
            if group.key in self._open:
                group.is_open = True
                group.nodes = [*worst(group.nodes, MAX_MEMBERS), *_rest(group.nodes, MAX_MEMBERS)]
        return sorted(groups.values(), key=lambda group: (-group.troubled, -len(group.nodes)))


def is_large(view: ClusterView) -> bool:
    """Whether not all nodes have a row; independent runs come in an order of their own."""
    return len(view.nodes) > MANY_NODES and not view.of_runs


def only_notable(view: ClusterView) -> ClusterView:
    """Return a large cluster with the nodes that a saved cell lists, and a note on the others."""
    if not is_large(view):
        return view
    listed = Listing().of(view)
    states = Counter(node.state.value for node in view.nodes)
    told = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
    note = f"{len(view.nodes):,} nodes: {told}; listed are the chief, and nodes that failed, hang or are slow"
    return replace(view, nodes=listed.nodes, notes=(*view.notes, note))


def severity(node: NodeView) -> float | None:
    """Return how much a node needs attention, the least number most; None where all is well."""
    if node.state.is_broken:
        return 0.0 if node.state is NodeState.FAILED else 1.0
    if hangs(node):
        return 2.0
    return 3.0 + 1.0 / _slower(node) if _slower(node) else None


def worst(nodes: Sequence[NodeView], at_most: int) -> list[NodeView]:
    """Return the nodes that need attention, the worst first."""
    troubled = ((bad, place) for place, node in enumerate(nodes) if (bad := severity(node)) is not None)
    return [nodes[place] for _, place in heapq.nsmallest(at_most, troubled)]


def _rest(nodes: Sequence[NodeView], at_most: int) -> Iterator[NodeView]:
    """Yield the nodes that `worst` leaves out, those that are least far first."""
    left = {node.name for node in worst(nodes, at_most)}
    others = [(node.step or 0, place) for place, node in enumerate(nodes) if node.name not in left]
    return (nodes[place] for _, place in sorted(others))


def _slower(node: NodeView) -> float:
    return (node.activity.slower or 0.0) if node.activity is not None else 0.0


def _more(troubled: int, groups: Sequence[Group], grouping: str) -> str:
    parts = []
    if troubled > 0:
        parts.append(f"{troubled:,} more {'needs' if troubled == 1 else 'need'} attention")
    if groups:
        parts.append(f"{len(groups):,} more {grouping}s with {sum(len(group.nodes) for group in groups):,} nodes")
    return " · ".join(parts)
