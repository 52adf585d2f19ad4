"""The nodes of a run as a table; what failed and hung ones did, and on a click the rest, stands below their rows. Pure.

Nodes that agree have one row together, which unfolds to theirs: those that differ stand out.
"""

from __future__ import annotations

import bisect
import heapq
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tfos_lab.core.markup import Html, h, join
from tfos_lab.core.states import NodeState, RunState, Tone
from tfos_lab.driver.results import LEAST_TOGETHER
from tfos_lab.driver.state.events import ClusterView, NodeView
from tfos_lab.notebook.display import summary
from tfos_lab.notebook.display.charts import dash_at, hue_at
from tfos_lab.notebook.display.columns import (
    METRIC,
    SHARE_KINDS,
    Column,
    node_columns,
    own_step_time_text,
    progress,
    progress_column,
    shares,
    straggler_text,
    text_of,
)
from tfos_lab.notebook.display.summary import Throughput, hangs

# ---- which nodes have a row ------------------------------------------------------------------------------------------

# All of up to `MANY_NODES`, or those that need attention, and some of the others. A page, a saved cell and a text never
# get a row for each of thousands of nodes.

MANY_NODES = 64
# Rows of nodes that do not agree with the others, the worst first, and of those that do.
MAX_TOP = 24
MAX_MEMBERS = 12


class Listed(NamedTuple):
    """The nodes that have a row: each on ``top``; those that agree have one ``together``, which unfolds to ``members``.

    ``more`` is a sentence on those that have none, if there are any.
    """

    top: Sequence[NodeView]
    together: Sequence[NodeView] = ()
    members: Sequence[NodeView] = ()
    more: str = ""

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """All nodes that have a row of their own."""
        return (*self.top, *self.members)


def listed(view: ClusterView, now_s: float = 0.0) -> Listed:
    """Return the nodes that have a row; see `agreeing` for those that have one together."""
    together = agreeing(view, now_s)
    names = {node.name for node in together}
    others = [node for node in view.nodes if node.name not in names]
    if not is_large(view):
        return Listed(others, together, together)
    worst = heapq.nsmallest(MAX_TOP, others, key=lambda node: (severity(node), node.step or 0))
    top = [*worst, *(node for node in others if node.is_chief and node not in worst)]
    names |= {node.name for node in top}
    left = Counter("hanging" if hangs(node) else node.state.value for node in others if node.name not in names)
    states = ", ".join(f"{count:,} {state}" for state, count in left.most_common())
    more = f"{left.total():,} more are not listed: {states}" if left else ""
    return Listed(top, together, together[:MAX_MEMBERS], more)


def only_listed(view: ClusterView) -> ClusterView:
    """Return the view of a large cluster with those of its nodes only that have a row, in its own order."""
    if not is_large(view):
        return view
    names = {node.name for node in listed(view).nodes}
    return replace(view, nodes=tuple(node for node in view.nodes if node.name in names))


def is_large(view: ClusterView) -> bool:
    """Whether not all nodes have a row; independent runs come in an order of their own."""
    return len(view.nodes) > MANY_NODES and not view.of_runs


def severity(node: NodeView) -> float:
    """Return how much a node needs attention, the least number most; infinite where all is well."""
    if node.state.is_broken:
        return 0.0 if node.state is NodeState.FAILED else 1.0
    if hangs(node):
        return 2.0
    slower = node.activity.slower if node.activity is not None else None
    return 3.0 + 1.0 / slower if slower else math.inf


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
# What else is beside texts, and how wide texts are, as ``summary.css`` has it.
_BESIDE = {"node": 44, "state": 28}
_SHARES, _WIDEST, _WIDEST_RANKED = 176, 324, 204
# The margins of a live table.
_MARGINS = 24
_DIGIT, _LETTER = 6.8, 5.8
# So many characters of a range are in a line of a saved table.
_RANGE = 9
_NOW = "now"
_HEARTBEAT = Column("tfos-heartbeat", "Heartbeat", lambda _: "12 s ago", rank=1)
# The widths of a page below which columns of each rank are left out.
_NARROWER = (0, 460, 560, 680, 740, 800, 850, 900, 960, 1080, 1160, 1240)


@dataclass
class LiveTable:
    """What the table of a live page has beside that of a saved cell: buttons, heartbeats, and a memory.

    ``can_ask`` tells whether nodes can be asked for their stacks, and ``asked`` which are asked just now.
    """

    throughput: Throughput = field(default_factory=Throughput)
    can_ask: bool = False
    asked: Collection[str] = ()
    # The longest text that each column has had: it keeps its width when texts get shorter.
    widths: dict[str, int] = field(default_factory=dict)
    # The ranks of the metrics that have a column of it.
    metrics: dict[str, int] = field(default_factory=dict)

    def render(self, view: ClusterView, now_s: float) -> Html:
        """Return the table of a view at this time."""
        return _Drawing(summary.with_endings(view), self, now_s).table()


def render_table(view: ClusterView, more: str = "") -> Html:
    """Return the table that a saved cell has; what there is ``more`` stands below its rows."""
    return _Drawing(view, None, 0.0).table(more)


def table_box(label: str, table: Html, more: str = "") -> Html:
    """Return a table in a box that scrolls; ``more`` are classes of it."""
    return h("div", table, cls=f"tfos-table-box {more}".strip(), role="region", aria_label=label, tabindex=0)


def render_state(state: NodeState | RunState) -> Html:
    """Return a state as its sign and its word; those that are not the last one are ``data-going``."""
    sign = h("span", state.look.sign, aria_hidden="true")
    look = {"data_state": state, "data_tone": state.look.tone, "data_going": not state.ended}
    return h("span", sign, f" {state}", cls="tfos-state", **look)


def _render_state_of(node: NodeView) -> Html:
    if not hangs(node):
        return render_state(node.state)
    sign = h("span", summary.sign_of(node), aria_hidden="true")
    return h("span", sign, " hangs", cls="tfos-state tfos-hung-mark", data_going=True)


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

    def __init__(self, view: ClusterView, live: LiveTable | None, now_s: float) -> None:
        self._view, self._places, self._live, self._now_s = view, view.places, live, now_s
        self._listed = listed(view, now_s)
        self._bar = progress_column(view)
        every = node_columns(only_listed(view), live.throughput if live else None)
        # Of its rank, a heartbeat stays the longest.
        shown = [_HEARTBEAT] * (live is not None) + [column for column in every if column.shown]
        self._longest = {column.key: self._longest_text(column) for column in shown}
        ranks = self._ranks(shown)
        self._heartbeat_rank = ranks.get(_HEARTBEAT.key)
        self._heartbeat_class = f"tfos-rank{self._heartbeat_rank} {_HEARTBEAT.key}"
        self._every = [replace(column, rank=ranks.get(column.key, column.rank)) for column in every]
        self._columns = [column for column in self._every if column.shown]
        if live is not None:
            live.metrics = {one.title: one.rank for one in self._columns if one.key.startswith(METRIC)}
        self._broken = summary.broken_nodes(view)
        self._width = len(self._columns) + (live is not None)

    def table(self, more: str = "") -> Html:
        heartbeat = h("th", _HEARTBEAT.title, scope="col", cls=self._heartbeat_class, data_key="heartbeat")
        titles = [*map(self._title, self._columns), heartbeat if self._live else None]
        rows = [row for node in self._listed.top for row in self._rows(node)]
        rows += [self._across(told) for told in (self._listed.more, more) if told]
        caption = h("caption", f"Nodes of {self._view.name}", cls="tfos-hidden") if self._live else None
        head, body = h("thead", h("tr", *titles)), h("tbody", *rows) if rows else None
        return table_box("Nodes", h("table", caption, head, *self._bodies_together(), body, cls="tfos-table"))

    def _across(self, told: str) -> Html:
        return h("tr", h("td", told, cls="tfos-facts", colspan=self._width))

    def _longest_text(self, column: Column) -> int:
        """Return the characters of the longest text of a column; in a live page, of the longest that it has had."""
        texts = [column.text(node) for node in self._listed.nodes]
        together = self._listed.together
        if together and column.key != "state":  # they soon agree in that
            text = text_of(column, together, len(self._view.nodes))
            texts.append(text[:_RANGE] if " – " in text and self._live is None else text)
        longest = max(map(len, texts), default=0)
        if self._live is not None:
            longest = self._live.widths[column.key] = max(self._live.widths.get(column.key, 0), longest)
        return longest

    def _ranks(self, columns: Sequence[Column]) -> dict[str, int]:
        """Return the columns' ranks; those that a page has no room for beside the others leave before it scrolls."""
        ranks = {}
        needed = 0.0 if self._live is None else _MARGINS
        # Not by their widths, which grow: columns would take turns.
        for column in sorted(columns, key=lambda column: column.rank):
            needed += self._pixels(column)
            widest = min(bisect.bisect_left(_NARROWER, needed), len(_NARROWER) - 1)
            ranks[column.key] = max(column.rank, widest) if column.rank else 0
        return ranks

    def _pixels(self, column: Column) -> float:
        """Return about how wide a column is."""
        if column.key == "shares":
            return _SHARES
        beside = _BAR if column.key == self._bar else _BESIDE.get(column.key, _SPACE)
        title = 0 if len(column.title) > _SHORT_TITLE else len(column.title) * _LETTER + _SPACE
        widest = _WIDEST_RANKED if column.rank and not column.numeric else _WIDEST
        return min(max(self._longest[column.key] * _DIGIT + beside, title), widest)

    def _title(self, column: Column) -> Html:
        width = None
        if self._live is not None and column.key not in _ANY_WIDTH:
            longest = self._longest[column.key]
            width = f"min-width:calc({longest} * var(--tfos-digit) + {_BAR if column.key == self._bar else _SPACE}px)"
        title, kind = title_of(column.title, _class_of(column))
        return h("th", title, scope="col", cls=kind, data_key=column.key, style=width)

    # ---- nodes that agree -------------------------------------------------------------------------------------------

    def _bodies_together(self) -> Iterator[Html]:
        """Yield the row of the nodes that agree, and theirs, which it unfolds."""
        nodes, members = self._listed.together, self._listed.members
        if not nodes:
            return
        name = text_of(self._columns[0], nodes, len(self._view.nodes))
        named = h("th", h("div", _more(f"Rows of {name}"), name, cls="tfos-node"), scope="row")
        cells = [named, *map(self._cell_together, self._columns[1:])]
        longest_silent = max(nodes, key=lambda node: _silent_s(node, self._now_s))
        row = h("tr", *cells, self._heartbeat(longest_silent), cls="tfos-together tfos-hue-all", data_key="together")
        yield h("tbody", row, data_key="together")
        rows = [row for node in members for row in self._rows(node)]
        if left := len(nodes) - len(members):
            rows.append(self._across(f"{left:,} more are not listed"))
        yield h("tbody", *rows, cls="tfos-members", hidden=True, data_key="members")

    def _cell_together(self, column: Column) -> Html:
        nodes, kind = self._listed.together, _class_of(column)
        text = text_of(column, nodes, len(self._view.nodes))
        cls = f"{kind or ''} tfos-range".strip() if " – " in text else kind
        return h("td", self._content(column, nodes, text), cls=cls)

    # ---- one node ---------------------------------------------------------------------------------------------------

    def _rows(self, node: NodeView) -> Iterator[Html]:
        place, name = self._places[node.name], node.name
        facts = self._facts(node)
        details = _more(f"Details of {name}") if facts else None
        link = _button(name, "log", "tfos-node-link", title="Show its log") if self._live else name
        named = h("th", h("div", details, link, cls="tfos-node"), scope="row")
        cells = [named, *(self._cell(node, column) for column in self._columns[1:])]
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
        if self._live is not None and (age := self._age_text(node)):
            facts.insert(0, h("div", h("dt", _HEARTBEAT.title), h("dd", age), cls=f"tfos-fact{self._heartbeat_rank}"))
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

    def _cell(self, node: NodeView, column: Column) -> Html:
        text = text_of(column, [node], len(self._view.nodes))
        title = node.detail if column.key == "state" else text if not column.numeric else ""
        return h("td", self._content(column, [node], text), cls=_class_of(column), title=title or None)

    # ---- a cell of a node, or of several that agree ------------------------------------------------------------------

    def _content(self, column: Column, nodes: Sequence[NodeView], text: str) -> Html | str:
        first = nodes[0]
        match column.key:
            case "state":
                counts = Counter(map(_render_state_of, nodes))
                told = [join(f"{count} " if len(counts) > 1 else "", one) for one, count in counts.items()]
                return join(told[0], *(join(", ", one) for one in told[1:]))
            case "shares":
                return _shares(nodes, text)
            case "step_time" if slower := straggler_text(first):
                return join(own_step_time_text(first), " ", h("span", slower, cls="tfos-straggles"))
        if column.key.removeprefix(METRIC) in first.nan_since:
            return h("span", text, cls="tfos-alarm")
        shown = _total_apart(text) if column.key == "step" else text
        if column.key != self._bar or self._view.state.ended:
            return shown
        parts = [part for node in nodes if (part := progress(node, self._view.feeds)) is not None]
        if not parts:
            return shown
        whose = first.name if len(nodes) == 1 else "the nodes"
        bar = render_bar(min(parts), f"Progress of {whose}", first.state.look.tone)
        return h("span", bar, h("span", shown), cls="tfos-progress")

    def _heartbeat(self, node: NodeView) -> Html | None:
        if self._live is None:
            return None
        age = self._age_text(node)
        late = " tfos-late" if age not in ("", _NOW) else ""
        return h("td", age, cls=f"{self._heartbeat_class}{late}")

    def _age_text(self, node: NodeView) -> str:
        """Return how long ago a node has given its last sign, where one is awaited."""
        if node.last_heartbeat_s is None or not node.state.is_present or self._view.state.ended:
            return ""
        age_s = _silent_s(node, self._now_s)
        return f"{summary.whole_seconds(age_s)} ago" if age_s >= _LATE_S else _NOW


def _total_apart(text: str) -> Html | str:
    """Return a step with its total, such as ``"12/40"``, so that a panel can leave out the total."""
    step, _, total = text.partition("/")
    return join(step, h("span", f"/{total}", cls="tfos-of")) if total else text


def _more(label: str) -> Html:
    return h("details", h("summary", aria_label=label), cls="tfos-more")


def _button(text: object, does: str, cls: str, **attributes: object) -> Html:
    return h("button", text, cls=cls, data_do=does, **attributes)


def _shares(nodes: Sequence[NodeView], text: str) -> Html | str:
    if not text:
        return ""
    known = shares(*nodes)
    parts = (h("span", data_share=kind, style=f"width:{share:.1%}") for kind, share in known.items() if share)
    kind, share = max(known.items(), key=lambda part: part[1])
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
    well = [node for node in view.nodes if severity(node) == math.inf and node.name not in late]
    trains = [node for node in well if node.job_name in ("chief", "worker")]
    if len({frozenset(node.nan_since) for node in trains}) > 1:
        trains = [node for node in trains if not node.nan_since]
    return tuple(trains) if len(trains) >= LEAST_TOGETHER else ()


def _silent_s(node: NodeView, now_s: float) -> float:
    """Return how long ago a node has given its last sign; 0 where none is awaited."""
    if node.last_heartbeat_s is None or not node.state.is_present:
        return 0.0
    return max(0.0, now_s - node.last_heartbeat_s)


def _class_of(column: Column) -> str | None:
    words = [f"tfos-rank{column.rank}"] * bool(column.rank) + ["tfos-numeric"] * column.numeric
    return " ".join(words) or None
