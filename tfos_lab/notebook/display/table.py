"""The nodes of a run as a table; what failed and hung ones did, and on a click the rest, stands below their rows. Pure.

Nodes that agree have one row together, which unfolds to theirs: those that differ stand out.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tfos_lab.core.markup import Html, h, join
from tfos_lab.core.states import NodeState, RunState, Tone
from tfos_lab.driver.results import LEAST_TOGETHER
from tfos_lab.driver.state.events import ClusterView, NodeView
from tfos_lab.notebook.display import summary
from tfos_lab.notebook.display.charts import dash_at, hue_at
from tfos_lab.notebook.display.columns import (
    SHARE_KINDS,
    Column,
    node_columns,
    own_step_time_text,
    progress,
    progress_column,
    range_of,
    shares,
    straggler_text,
    text_together,
)
from tfos_lab.notebook.display.summary import Throughput, hangs
from tfos_lab.texts import format_count

# ---- which nodes have a row ------------------------------------------------------------------------------------------

# All of up to `MANY_NODES`, or those that need attention, the chief, and some of each state. A page, a saved cell and a
# text never get a row for each of thousands of nodes.

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

    ``more`` is a sentence on what needs attention and has no row.
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


# ---- the table -------------------------------------------------------------------------------------------------------


# A sign of life older than this is marked: agents send one every second or so.
_LATE_S = 5.0
# Columns that are never made wider for their longest text: it is long, or does not change.
_ANY_WIDTH = frozenset({"node", "args", "host", "shares"})
# Longer titles take several lines.
_SHORT_TITLE = 16


def title_of(text: str, cls: str | None) -> tuple[str, str | None]:
    """Return a column's title and its class; a long one breaks after its words: columns behind it stay in sight."""
    if len(text) <= _SHORT_TITLE:
        return text, cls
    first, *words = re.split(r"(?<=_)(?=[^_])", text)
    return join(first, *(join(Html("<wbr>"), word) for word in words)), f"{cls or ''} tfos-long".strip()


# A bar, and the space beside a text, in pixels.
_BAR, _SPACE = 64, 12


@dataclass
class LiveTable:
    """What the table of a live page has beside that of a saved cell: buttons, heartbeats, groups, and a memory.

    ``can_ask`` tells whether nodes can be asked for their stacks, and ``asked`` which are asked just now.
    """

    throughput: Throughput = field(default_factory=Throughput)
    can_ask: bool = False
    asked: Collection[str] = ()
    # The longest text that each column has had: it keeps its width when texts get shorter.
    widths: dict[str, int] = field(default_factory=dict)

    def render(self, view: ClusterView, now_s: float) -> Html:
        """Return the table of a view at this time."""
        view = summary.with_endings(view)
        rows = listed(view)
        return _Drawing(replace(view, nodes=rows.nodes), view.places, self, now_s).table(rows)


def render_table(view: ClusterView, places: Mapping[str, int], more: str = "") -> Html:
    """Return the table that a saved cell has; ``places`` has the numbers of the nodes' colours.

    What is ``more`` than the nodes of the view stands below them.
    """
    return _Drawing(view, places, None, 0.0).table(Listed(view.nodes, more=more))


def table_box(label: str, table: Html, more: str = "") -> Html:
    """Return a table in a box that scrolls; ``more`` are classes of it."""
    return h("div", table, cls=f"tfos-table-box {more}".strip(), role="region", aria_label=label, tabindex=0)


def render_state(state: NodeState | RunState | Literal["hangs"]) -> Html:
    """Return a state as its sign and its word; those that are not the last one are ``data-going``."""
    if state == "hangs":
        sign = h("span", summary.HANGS_SIGN, aria_hidden="true")
        return h("span", sign, " hangs", cls="tfos-state tfos-hung-mark", data_going=True)
    sign = h("span", state.look.sign, aria_hidden="true")
    look = {"data_state": state, "data_tone": state.look.tone, "data_going": not state.ended}
    return h("span", sign, f" {state}", cls="tfos-state", **look)


def render_bar(part: float, label: str, tone: Tone = Tone.BUSY) -> Html:
    """Return a bar of which ``part``, 0 to 1, is full."""
    return h(
        "span",
        h("span", style=f"width:{part:.1%}"),
        cls="tfos-bar",
        data_tone=tone,
        role="progressbar",
        aria_label=label,
        aria_valuenow=round(part * 100),
    )


class _Drawing:
    """One drawing of the table; ``live`` where it is that of a page."""

    def __init__(self, view: ClusterView, places: Mapping[str, int], live: LiveTable | None, now_s: float) -> None:
        self._view, self._places, self._live, self._now_s = view, places, live, now_s
        self._every = node_columns(view, live.throughput if live else None)
        self._columns = [column for column in self._every if column.shown]
        self._bar = progress_column(view)
        self._broken = summary.broken_nodes(view)
        self._width = len(self._columns) + (live is not None)
        self._together: Sequence[NodeView] = ()

    def table(self, listed: Listed) -> Html:
        self._together = () if listed.groups else agreeing(self._view, self._now_s)
        heartbeat = h("th", "Heartbeat", scope="col", cls="tfos-rank1 tfos-heartbeat", data_key="heartbeat")
        titles = [*map(self._title, self._columns), heartbeat if self._live else None]
        rows = [row for node in listed.top if node not in self._together for row in self._rows(node)]
        if listed.more:
            rows.append(self._across(h("span", listed.more, cls="tfos-facts")))
        caption = h("caption", f"Nodes of {self._view.name}", cls="tfos-hidden") if self._live else None
        head, body = h("thead", h("tr", *titles)), h("tbody", *rows) if rows else None
        folded = [*self._bodies_together(), body, *(part for group in listed.groups for part in self._bodies_of(group))]
        table = h("table", caption, head, *folded, cls="tfos-table")
        return table_box("Nodes", table)

    def _title(self, column: Column) -> Html:
        width = None
        if self._live is not None and column.key not in _ANY_WIDTH:
            texts = [column.text(node) for node in self._view.nodes]
            texts += [range_of([column.text(node) for node in self._together])] if self._together else []
            longest = max(map(len, texts), default=0)
            longest = self._live.widths[column.key] = max(self._live.widths.get(column.key, 0), longest)
            width = f"min-width:calc({longest} * var(--tfos-digit) + {_BAR if column.key == self._bar else _SPACE}px)"
        title, kind = title_of(column.title, _class_of(column))
        return h("th", title, scope="col", cls=kind, data_key=column.key, style=width)

    # ---- rows that unfold -------------------------------------------------------------------------------------------

    def _unfolding(self, row: Html, nodes: Sequence[NodeView], key: str, rows_key: str) -> Iterator[Html]:
        """Yield a row, and those of nodes, which it unfolds."""
        yield h("tbody", row, data_key=key)
        rows = (row for node in nodes for row in self._rows(node))
        yield h("tbody", *rows, cls="tfos-members", hidden=True, data_key=rows_key)

    def _bodies_of(self, group: Group) -> Iterator[Html]:
        """Yield the row of a state of a large cluster, and those of some of its nodes."""
        needs = "needs" if group.troubled == 1 else "need"
        parts = (
            _more(f"Rows of {group.state}") if group.nodes else None,
            h("span", group.state, cls="tfos-group-name"),
            h("span", f"{group.count:,}", cls="tfos-group-count"),
            h("span", f"{group.troubled:,} {needs} attention", cls="tfos-trouble") if group.troubled else None,
            h("span", group.facts, cls="tfos-facts"),
        )
        row = self._across(h("div", *parts, cls="tfos-node"))
        yield from self._unfolding(row, group.nodes, f"group {group.state}", f"members {group.state}")

    def _across(self, content: Html) -> Html:
        return h("tr", h("th", content, scope="rowgroup", colspan=self._width), cls="tfos-group")

    # ---- nodes that agree -------------------------------------------------------------------------------------------

    def _bodies_together(self) -> Iterator[Html]:
        """Yield the row of the nodes that agree, and theirs, which it unfolds."""
        if not self._together:
            return
        cells = [self._cell_together(column) for column in self._columns]
        longest_silent = max(self._together, key=lambda node: _silent_s(node, self._now_s))
        row = h("tr", *cells, self._heartbeat(longest_silent), cls="tfos-together tfos-hue-all", data_key="together")
        yield from self._unfolding(row, self._together, "together", "members")

    def _cell_together(self, column: Column) -> Html:
        nodes = self._together
        text = text_together(column, nodes, len(self._view.nodes))
        match column.key:
            case "node":
                return h("th", h("div", _more(f"Rows of {text}"), text, cls="tfos-node"), scope="row")
            case "state":
                counts = Counter(node.state for node in nodes)
                told = [
                    join(f"{count} " if len(counts) > 1 else "", render_state(one)) for one, count in counts.items()
                ]
                content: Html | str = join(told[0], *(join(", ", one) for one in told[1:]))
            case "shares":
                content = _shares(nodes[0], text)
            case _:
                content = h("span", text, cls="tfos-alarm") if _is_nan(nodes[0], column) else text
        parts = [part for node in nodes if (part := progress(node, self._view.feeds)) is not None]
        if column.key == self._bar and parts and not self._view.state.ended:
            bar = render_bar(min(parts), "Progress of the nodes")
            content = h("span", bar, h("span", content), cls="tfos-progress")
        kind = _class_of(column)
        return h("td", content, cls=f"{kind or ''} tfos-range".strip() if " – " in text else kind)

    # ---- one node ---------------------------------------------------------------------------------------------------

    def _rows(self, node: NodeView) -> Iterator[Html]:
        place, name = self._places[node.name], node.name
        facts = self._facts(node)
        cells = [self._cell(node, column, has_facts=bool(facts)) for column in self._columns]
        look = {"cls": f"tfos-hue{hue_at(place)}", "data_dash": dash_at(place)}
        yield h("tr", *cells, self._heartbeat(node), **look, data_key=name)
        if facts:
            cell = h("td", *facts, colspan=self._width)
            yield h("tr", cell, cls="tfos-more-row", hidden=True, data_key=f"{name} facts")
        if broken := self._broken.get(name):
            yield self._below(broken, f"{name} broken")
        if summary.hangs(node):
            bar = h("div", h("span", node.hung), self._stacks_button(node), cls="tfos-hung")
            yield self._below(bar, f"{name} hangs")

    def _below(self, content: Html | str, key: str) -> Html:
        return h("tr", h("td", content, colspan=self._width), cls="tfos-detail", data_key=key)

    def _facts(self, node: NodeView) -> list[Html]:
        """Return what columns that are not shown say of a node, and those that a narrow page leaves out."""
        facts = [
            h("div", h("dt", column.title), h("dd", text), cls=f"tfos-fact{column.rank if column.shown else ''}")
            for column in self._every
            if (not column.shown or column.rank) and (text := column.text(node))
        ]
        told = [h("dl", *facts, cls="tfos-row-facts")] if facts else []
        asks = None if summary.hangs(node) else self._stacks_button(node)
        return [*told, asks] if asks else told

    def _stacks_button(self, node: NodeView) -> Html | None:
        if self._live is None or not self._live.can_ask or not node.state.is_present:
            return None
        look = {"data_node": node.name, "aria_label": f"Stacks of {node.name}"}
        if node.name in self._live.asked:
            look |= {"aria_label": f"Asking… {node.name}", "aria_disabled": "true"}
        return _button("Asking…" if node.name in self._live.asked else "Stacks", "stacks", "tfos-button", **look)

    def _cell(self, node: NodeView, column: Column, *, has_facts: bool) -> Html:
        if column.key == "node":
            details = _more(f"Details of {node.name}") if has_facts else None
            name = _button(node.name, "log", "tfos-node-link", title="Show its log") if self._live else node.name
            return h("th", h("div", details, name, cls="tfos-node"), scope="row")
        title = node.detail if column.key == "state" else column.text(node) if not column.numeric else ""
        return h("td", self._content(node, column), cls=_class_of(column), title=title or None)

    def _content(self, node: NodeView, column: Column) -> Html | str:
        match column.key:
            case "state":
                return render_state("hangs" if summary.hangs(node) else node.state)
            case "shares":
                return _shares(node, column.text(node))
            case "step_time":
                slower = straggler_text(node)
                mark = join(" ", h("span", slower, cls="tfos-straggles")) if slower else None
                return join(own_step_time_text(node), mark)
        text = column.text(node)
        if _is_nan(node, column):
            return h("span", text, cls="tfos-alarm")
        part = progress(node, self._view.feeds) if column.key == self._bar else None
        if part is None or self._view.state.ended:
            return text
        bar = render_bar(part, f"Progress of {node.name}", node.state.look.tone)
        return h("span", bar, h("span", text), cls="tfos-progress")

    def _heartbeat(self, node: NodeView) -> Html | None:
        if self._live is None:
            return None
        age_s, late = None, None
        if node.last_heartbeat_s is not None and node.state.is_present and not self._view.state.ended:
            age_s = _silent_s(node, self._now_s)
            late = " tfos-late" if age_s >= _LATE_S else None
        text = "" if age_s is None else f"{summary.whole_seconds(age_s)} ago" if late else "now"
        return h("td", text, cls=f"tfos-rank1 tfos-heartbeat{late or ''}")


def _more(label: str) -> Html:
    return h("details", h("summary", aria_label=label), cls="tfos-more")


def _button(text: object, does: str, cls: str, **attributes: object) -> Html:
    return h("button", text, cls=cls, data_do=does, **attributes)


def _shares(node: NodeView, text: str) -> Html | str:
    if not text:
        return ""
    parts = (h("span", data_share=kind, style=f"width:{share:.1%}") for kind, share in shares(node).items() if share)
    kind, share = max(shares(node).items(), key=lambda part: part[1])
    return join(
        h("span", *parts, cls="tfos-shares", role="img", aria_label=text, title=text),
        " ",
        h("span", f"{SHARE_KINDS[kind][1]} {share * 100:.0f} %", cls="tfos-share-words", aria_hidden="true"),
    )


def agreeing(view: ClusterView, now_s: float = 0.0) -> tuple[NodeView, ...]:
    """Return the nodes that have one row together: those of one kind with which all is well, if there are enough.

    Live, those that have been silent for a while by ``now_s`` are not among them; a picture leaves out none for that.
    """
    if view.of_runs:
        return ()
    late = {node.name for node in view.nodes if not view.state.ended and _silent_s(node, now_s) >= _LATE_S}
    well = [node for node in view.nodes if severity(node) is None and node.name not in late]
    trains = [node for node in well if node.job_name in ("chief", "worker")]
    if len({frozenset(node.nan_since) for node in trains}) > 1:
        trains = [node for node in trains if not node.nan_since]
    return tuple(trains) if len(trains) >= LEAST_TOGETHER else ()


def _silent_s(node: NodeView, now_s: float) -> float:
    """Return how long ago a node has given its last sign; 0 where none is awaited."""
    if node.last_heartbeat_s is None or not node.state.is_present:
        return 0.0
    return max(0.0, now_s - node.last_heartbeat_s)


def _is_nan(node: NodeView, column: Column) -> bool:
    return column.key.removeprefix("metric ") in node.nan_since


def _class_of(column: Column) -> str | None:
    words = [f"tfos-rank{column.rank}"] * bool(column.rank) + ["tfos-numeric"] * column.numeric
    return " ".join(words) or None
