"""The live output of a cell: a widget that shows the cluster, and the thread that updates it.

The parts of the card, which Python draws, travel as traits, and so does the ``view``, what the page goes by beside
them; log text travels as custom messages, ten a second. When the cell ends, the output is replaced by the whole card.
Until then the page shows the widget, and the document holds a picture that follows the run: a saved notebook never asks
for the widget.

to         kind      content
========== ========= ==================================================================================================
front end  log       ``seq``, ``chunks`` of finished lines in order, ``open``: each node's unfinished line
front end  history   the same, of all that is remembered, for pages that have missed the beginning
front end  picture   ``bundle`` that stands in the document for the widget ``model`` while the run goes on
front end  end       ``bundle`` that replaces the widget ``model``
kernel     hello     a page has loaded; it gets the history and the picture, or the end
kernel     stacks    somebody asks where the threads of ``node`` are
kernel     stop      end the cluster
========== ========= ==================================================================================================

``extensions/dashboard`` is the other side; its ``model.ts`` has the types.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from typing import Any

import anywidget
import traitlets
from IPython.display import display

from tfos_lab.core import cluster_records
from tfos_lab.core.markup import join
from tfos_lab.core.states import RunState
from tfos_lab.core.threads import on_a_thread
from tfos_lab.driver.state.events import BANDS, ClusterView, Event, LogText, ShownView, UsageView
from tfos_lab.notebook.display import WatchedCluster
from tfos_lab.notebook.display.assets import read_asset
from tfos_lab.notebook.display.card import (
    PICTURE_EVERY_S,
    NodeStacks,
    Pace,
    bundle_of,
    render_stacks,
    traits,
)
from tfos_lab.notebook.display.charts import render_charts, render_usage
from tfos_lab.notebook.display.kernel import current_kernel, keep_busy, served_path
from tfos_lab.notebook.display.log_feed import LogFeed
from tfos_lab.notebook.display.plain_display import RedrawnCard
from tfos_lab.notebook.display.series import SeriesBook, bands_now, series_before
from tfos_lab.notebook.display.shown import LIVE_BYTES, render_shown
from tfos_lab.notebook.display.table import LiveTable, is_large

logger = logging.getLogger(__name__)

LOG_PERIOD_S = 0.1

# How often the view, and charts and what nodes show, are sent at most.
VIEW_EVERY_S = 0.2
CHARTS_EVERY_S = 1.0

# In periods: how often the kernel is announced as busy again, for pages that were loaded since the last time.
BUSY_EVERY = 20

# In periods: a page that has not sent its hello by then cannot reach us (older ipykernel, busy cell), and gets the
# history unasked.
UNREACHABLE_AFTER = 20

# A page that asks for a node's stacks gets an answer in this time, whatever the node does.
STACKS_PATIENCE_S = 5.0

# What a node of a large cluster has written before somebody saw its row.
_TAIL_LINES = 20


class Dashboard(RedrawnCard):
    """Shows a cluster live until it is closed, by a widget; takes what `RedrawnCard` does."""

    def _begin(self) -> None:
        self._greeted = False
        self._end_bundle: dict[str, str] | None = None
        self._busy = keep_busy(current_kernel())
        self._stacks = _Stacks(self._cluster)
        # Independent runs have none.
        table = LiveTable(can_ask=hasattr(self._cluster, "stacks"), asked=self._stacks.asked)
        self._updates = Updates(self._cluster, table, self._bundle, display_key=self._id, blocking=self._blocking)
        self._widget = self._updates.widget
        self._widget.fallback = self._bundle()
        self._widget.receive(self._on_message)
        display(self._widget, display_id=self._id, metadata=self._metadata)  # type: ignore[no-untyped-call]

    def _finish(self) -> None:
        self._updates.send_last()
        self._updates.close()
        self._stacks.close()

    def _replace(self, bundle: dict[str, str]) -> None:
        """Replace the widget by the whole card, and have pages that come later do so."""
        is_first, self._end_bundle = self._end_bundle is None, bundle
        super()._replace(bundle)
        if is_first:
            self._updates.send_end(bundle)
            _retire(self._widget)

    def _bundle(self) -> dict[str, str]:
        stacks, folds = self._stacks.answers, self._folds_error
        return bundle_of(self._cluster, raises=self._blocking, folds_error=folds, stacks=stacks)

    # ---- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        told: Sequence[NodeStacks] = []
        for period in itertools.count(1):
            if self._closing.wait(LOG_PERIOD_S):
                return
            self._updates.send()
            if (stacks := self._stacks.answers) != told:
                told, self._widget.stacks = stacks, render_stacks(stacks, live=True)
            if self._busy is not None and period % BUSY_EVERY == 0:
                self._busy.repeat()
            if period == UNREACHABLE_AFTER and not self._greeted:
                self._updates.send_history()
            if not self._blocking and self._updates.shown_state.ended:
                self.close()

    # ---- messages of the front end; they come on the main thread, or on a subshell's --------------------------------

    def _on_message(self, content: object) -> None:
        match content:
            case {"kind": "hello"}:
                self._greeted = True
                if self._end_bundle is not None:
                    self._updates.send_end(self._end_bundle)
                else:
                    self._updates.send_history()
                    self._updates.send_picture()
            case {"kind": "stacks", "node": str(node)}:
                self._stacks.ask(node)
            case {"kind": "stop"}:
                # It may take the nodes' whole grace period: not on the thread that reads messages.
                on_a_thread(self._cluster.stop, name=f"tfos-stop-{self._cluster.id}")


# ---- the widget -----------------------------------------------------------------------------------------------------


class DashboardWidget(anywidget.AnyWidget):
    """What the front end draws: parts of the card as HTML, and ``view``; `Dashboard` owns it."""

    _esm = read_asset("dashboard.js")
    _css = read_asset("dashboard.css")

    head = traitlets.Unicode().tag(sync=True)
    course = traitlets.Unicode().tag(sync=True)
    nodes = traitlets.Unicode().tag(sync=True)
    charts = traitlets.Unicode().tag(sync=True)
    shown = traitlets.Unicode().tag(sync=True)
    stacks = traitlets.Unicode().tag(sync=True)
    tabs = traitlets.Unicode().tag(sync=True)
    view = traitlets.Dict().tag(sync=True)
    display_key = traitlets.Unicode().tag(sync=True)
    blocking = traitlets.Bool(default_value=True).tag(sync=True)

    fallback: dict[str, str]

    def receive(self, on_message: Callable[[object], None]) -> None:
        """Pass the front end's messages on, also while a cell blocks.

        ipykernel 7.4 hands messages of a comm to the shell that last published on it, which is the busy one. Without
        this attribute they go where the front end sent them: to a subshell.
        """
        self.on_msg(lambda _widget, content, _buffers: on_message(content))
        if hasattr(self.comm, "_reply_subshell_for"):
            self.comm._reply_subshell_for = None  # noqa: SLF001 - there is no public way

    def _repr_mimebundle_(self, **kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
        made = super()._repr_mimebundle_(**kwargs)
        if made is None:
            return None
        # A front end without widgets shows the current picture; at the end it gets the last one as all others do.
        return {**made[0], **self.fallback}, made[1]


# So many widgets of ended dashboards are kept before the oldest one is closed.
KEEP_RETIRED = 4

_retired: deque[DashboardWidget] = deque()


def _retire(widget: DashboardWidget) -> None:
    """Close the widget later, and the layout that came with it.

    A page that was reloaded while a cell blocked asks for its widgets only when the cell has ended. It must still find
    this one then, to learn that it has ended.
    """
    _retired.append(widget)
    while len(_retired) > KEEP_RETIRED:
        oldest = _retired.popleft()
        layout = oldest.layout
        oldest.close()
        layout.close()


# ---- what the page is sent ------------------------------------------------------------------------------------------


class Updates:
    """Sends to the widget what has changed: parts of the card, the view, log text, pictures.

    The dashboard's thread calls it, and for pages that have just loaded the threads that receive their messages.
    ``make_bundle`` draws the picture for the document; ``fixed`` are traits of the widget that stay as they are.
    """

    def __init__(
        self, cluster: WatchedCluster, table: LiveTable, make_bundle: Callable[[], dict[str, str]], **fixed: str | bool
    ) -> None:
        self._cluster = cluster
        self._subscription = cluster.bus.subscribe()
        self._make_bundle = make_bundle
        self._table = table
        self._server_root = cluster_records.own_server_root()
        self._followed = _FollowedLogs(cluster)
        self._feed = LogFeed()
        self._metrics = SeriesBook(cluster.view().started_s)
        self._banded: ClusterView | None = None
        self._reports_seen = 0
        # A page gets batches and history in order, from whichever thread.
        self._sending = threading.Lock()
        self._picturing = threading.Lock()
        self._has_ended = False
        self._view_pace = Pace(VIEW_EVERY_S)
        self._charts_pace, self._shown_pace = Pace(CHARTS_EVERY_S), Pace(CHARTS_EVERY_S)
        self._picture_pace = Pace(PICTURE_EVERY_S)
        self._drawn: tuple[ShownView, ...] = ()
        self._usage: tuple[UsageView, ...] = ()
        self._pictured_state: RunState | None = None
        self._sent = self._draw_view()
        self.widget = DashboardWidget(**self._sent, **fixed)

    @property
    def shown_state(self) -> RunState:
        """The cluster's state as the front end knows it."""
        return RunState(self._sent["view"]["state"])

    def send(self) -> None:
        """Send what is new, as far as it is time to; an error is logged and ends this update only."""
        try:
            self._send_logs()
            self._view_pace.draw(self._send_view)
            self._charts_pace.draw(self._send_charts)
            self._shown_pace.draw(self._send_shown)
            if self.shown_state is not self._pictured_state:
                self._picture_pace.hasten()
            if not self.shown_state.ended:
                self._picture_pace.draw(self.send_picture)
        except Exception:
            logger.exception("the dashboard of cluster %s missed an update", self._cluster.id)

    def send_last(self) -> None:
        """Send what is left, whatever share of the time it takes."""
        for pace in (self._view_pace, self._charts_pace, self._shown_pace):
            pace.hasten()
        self.send()

    def close(self) -> None:
        """Take no further events."""
        self._subscription.close()

    # ---- at intervals ------------------------------------------------------------------------------------------------

    def _send_logs(self) -> None:
        self._feed.take_in_all(self._followed.among(self._subscription.take()))
        self._feed.add_dropped(0 if self._followed.is_chosen else self._subscription.take_dropped())
        with self._sending:
            batch = self._feed.take_out()
            if batch is not None:
                self.widget.send({"kind": "log", **batch})

    def _send_view(self) -> int:
        shown = self._draw_view()
        if shown != self._sent:
            with self.widget.hold_sync():
                for name, value in shown.items():
                    self.widget.set_trait(name, value)
            self._sent = shown
        return 0

    def _draw_view(self) -> dict[str, Any]:
        view = self._view = self._cluster.view()
        now_s = time.time()
        self._table.throughput.record(view, now_s)
        # The time in the parts goes on second by second, so that the page hears from a live kernel.
        whole_s = view.started_s + int(now_s - view.started_s)
        shown = traits(view, whole_s, self._table, str(self._cluster.run_dir), self._log_of)
        if is_large(view):
            self._followed.choose(shown["view"]["hues"])
        return shown

    def _log_of(self, node: str) -> str | None:
        try:
            return served_path(self._cluster.log_path(node), self._server_root)
        except KeyError:
            return None

    def _send_charts(self) -> int:
        view = self._view
        if is_large(view):
            reports = bands_now(view, time.time()) if view is not self._banded else []
            self._banded, lines = view, list(BANDS)
        else:
            reports, self._reports_seen = self._cluster.reports_after(self._reports_seen)
            lines = sorted(view.places, key=view.places.__getitem__)
        if not reports and view.usage == self._usage:
            return 0
        self._usage = view.usage
        self._metrics.add(reports)
        before = series_before(self._cluster.run_dir, view.name)
        metrics = render_charts(
            self._metrics.series(), lines, with_values=True, before=before, in_table=self._table.metrics
        )
        self.widget.charts = join(metrics, render_usage(view, with_values=True))
        return len(self.widget.charts)

    def _send_shown(self) -> int:
        shown = self._view.shown
        if shown == self._drawn:
            return 0
        self._drawn = shown
        self.widget.shown = render_shown(shown, self._cluster.run_dir, LIVE_BYTES)
        return len(self.widget.shown)

    # ---- on request --------------------------------------------------------------------------------------------------

    def send_picture(self) -> int:
        """Send the current picture for the document, unless it has the last one; return how many characters it has."""
        with self._picturing:
            if self._has_ended:
                return 0
            self._pictured_state = self.shown_state
            bundle = self._make_bundle()
            self.widget.send({"kind": "picture", "model": self.widget.model_id, "bundle": bundle})
            return len(bundle["text/html"])

    def send_history(self) -> None:
        """Send all remembered log text."""
        with self._sending:
            self.widget.send({"kind": "history", **self._feed.history()})

    def send_end(self, bundle: dict[str, str]) -> None:
        """Send the output that replaces the widget; no picture follows it."""
        with self._picturing:
            self._has_ended = True
            self.widget.send({"kind": "end", "model": self.widget.model_id, "bundle": bundle})


class _FollowedLogs:
    """Picks the events of the nodes that are followed: of a large cluster, those that have a row (``is_chosen``)."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster
        self.is_chosen = False
        self._nodes: frozenset[str] = frozenset()
        self._new: list[str] = []

    def choose(self, nodes: Iterable[str]) -> None:
        """Follow these nodes and no others from now on."""
        chosen = frozenset(nodes)
        self._new += sorted(chosen - self._nodes)
        self._nodes, self.is_chosen = chosen, True

    def among(self, events: Sequence[Event]) -> list[Event]:
        """Return the text of the followed nodes, which for new ones begins with the end of their files."""
        if not self.is_chosen:
            return list(events)
        new, self._new = self._new, []
        known = self._nodes.difference(new)
        tails = [(node, self._cluster.logs(node, tail=_TAIL_LINES)) for node in new]
        now_s = time.time()
        begun = [LogText(time_s=now_s, node=node, stream="stdout", text=f"{text}\n") for node, text in tails if text]
        return [*begun, *(event for event in events if isinstance(event, LogText) and event.node in known)]


class _Stacks:
    """Asks nodes for their stacks, each on a thread of its own, and keeps the last answers."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._answers: dict[str, NodeStacks] = {}
        self._pending: list[Future[None]] = []
        # The nodes that are asked just now.
        self.asked: set[str] = set()

    @property
    def answers(self) -> list[NodeStacks]:
        """The last answer of each node that was asked."""
        return list(self._answers.values())

    def ask(self, node: str) -> None:
        """Ask a node, unless it is being asked."""
        if node not in self.asked:
            self.asked.add(node)
            self._pending.append(on_a_thread(lambda: self._ask(node), name="tfos-stacks"))

    def close(self) -> None:
        """Wait for answers that are on their way, for a short time."""
        wait(self._pending, timeout=1.0)

    def _ask(self, node: str) -> None:
        try:
            text = self._cluster.stacks(node, timeout=STACKS_PATIENCE_S).get(node, "")
        except Exception as error:  # noqa: BLE001 - the page waits for whatever it is
            text = str(error)
        self._answers[node] = NodeStacks(node, text or "The node has not answered.", time.time())
        self.asked.discard(node)
