"""What a dashboard's front end is sent while its cluster runs: parts of the card, the view, log text, pictures."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tfos_lab.core.states import RunState
from tfos_lab.driver.bus import Subscription
from tfos_lab.driver.state.events import ClusterView, Event, LogText, ShownView
from tfos_lab.notebook.display import messages
from tfos_lab.notebook.display.bands import BANDS, bands_now
from tfos_lab.notebook.display.base import WatchedCluster
from tfos_lab.notebook.display.card import traits
from tfos_lab.notebook.display.listing import is_large
from tfos_lab.notebook.display.log_feed import LogFeed
from tfos_lab.notebook.display.log_files import ServedLogs
from tfos_lab.notebook.display.metric_charts import render_charts
from tfos_lab.notebook.display.series import SeriesBook, series_before
from tfos_lab.notebook.display.shown import LIVE_BYTES, render_shown
from tfos_lab.notebook.display.static_bundle import PAGE_BYTES_PER_S, pause_after
from tfos_lab.notebook.display.table import LiveTable
from tfos_lab.notebook.display.widget import DashboardWidget

logger = logging.getLogger(__name__)

# Views and charts may take this share of the time: views of four nodes go five times a second, those of 64 twice.
VIEW_SHARE = 0.05


class Updates:
    """Sends to the widget what has changed.

    The dashboard's thread calls it, and for pages that have just loaded the threads that receive their messages.

    Parameters
    ----------
    cluster : WatchedCluster
        The cluster to watch.
    subscription : Subscription
        Its events.
    widget : DashboardWidget
        Where the updates go.
    table : LiveTable
        Draws the nodes.
    served : ServedLogs
        Where pages find the nodes' log files.
    make_bundle : callable
        Draws the picture for the document.
    """

    def __init__(
        self,
        cluster: WatchedCluster,
        subscription: Subscription,
        widget: DashboardWidget,
        table: LiveTable,
        *,
        served: ServedLogs,
        make_bundle: Callable[[], dict[str, str]],
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._widget = widget
        self._make_bundle = make_bundle
        self._table = table
        self._served = served
        self._followed = FollowedLogs(cluster)
        self._feed = LogFeed()
        self._metrics = SeriesBook(cluster.view().started_s)
        self._banded: ClusterView | None = None
        self._reports_seen = 0
        # A page gets batches and history in order, from whichever thread.
        self._sending = threading.Lock()
        self._picturing = threading.Lock()
        self._has_ended = False
        self._shown: dict[str, Any] = {}
        self._view_due_s = 0.0
        self._charts_due_s = 0.0
        self._shown_due_s = 0.0
        self._drawn: tuple[ShownView, ...] = ()
        self._last_view: ClusterView | None = None
        self._changed = True
        self._pictured_state: RunState | None = None
        self._picture_due_s = 0.0

    @property
    def shown_state(self) -> RunState:
        """The cluster's state as the front end knows it."""
        return RunState(self._shown["view"]["state"] if self._shown else RunState.LAUNCHING)

    def send(self, *, with_view: bool, with_charts: bool, with_picture: bool) -> None:
        """Send what is new; an error is logged and ends this update only."""
        try:
            self._send_logs()
            if with_view:
                self._send_view()
            if with_charts:
                self._send_charts()
                self._send_shown()
            if with_picture and self._picture_is_due():
                self.send_picture()
        except Exception:
            logger.exception("the dashboard of cluster %s missed an update", self._cluster.id)

    def send_last(self) -> None:
        """Send what is left, whatever share of the time it takes."""
        self._view_due_s = self._charts_due_s = self._shown_due_s = 0.0
        self.send(with_view=True, with_charts=True, with_picture=False)

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
                self._changed = True
                self._widget.send_message({"kind": "log", **batch})

    def _send_view(self) -> None:
        began_s = time.monotonic()
        if began_s < self._view_due_s:
            return
        view = self._last_view = self._cluster.view()
        now_s = time.time()
        self._table.throughput.record(view, now_s)
        # The time in the parts goes on second by second, so that the page hears from a live kernel.
        whole_s = view.started_s + int(now_s - view.started_s)
        shown = traits(view, whole_s, self._table, str(self._cluster.run_dir), self._served.path_of)
        if is_large(view):
            self._followed.choose(row["node"] for row in shown["view"]["rows"])
        self._view_due_s = time.monotonic() + (time.monotonic() - began_s) / VIEW_SHARE
        if shown == self._shown:
            return
        self._changed = True
        with self._widget.hold_sync():
            for name, value in shown.items():
                self._widget.set_trait(name, value)
        self._shown = shown

    def _send_charts(self) -> None:
        began_s = time.monotonic()
        view = self._last_view
        if view is None or began_s < self._charts_due_s:
            return
        if is_large(view):
            reports = bands_now(view, time.time()) if view is not self._banded else []
            self._banded, lines = view, list(BANDS)
        else:
            reports, self._reports_seen = self._cluster.reports_after(self._reports_seen)
            lines = sorted(view.places, key=view.places.__getitem__)
        if not reports:
            return
        self._metrics.add(reports)
        before = series_before(self._cluster.run_dir, view.name)
        self._widget.charts = render_charts(self._metrics.series(), lines, with_values=True, before=before)
        pause_s = max((time.monotonic() - began_s) / VIEW_SHARE, len(self._widget.charts) / PAGE_BYTES_PER_S)
        self._charts_due_s = time.monotonic() + pause_s

    def _send_shown(self) -> None:
        view = self._last_view
        if view is None or view.shown == self._drawn or time.monotonic() < self._shown_due_s:
            return
        self._drawn = view.shown
        self._widget.shown = render_shown(view.shown, self._cluster.run_dir, LIVE_BYTES)
        self._shown_due_s = time.monotonic() + len(self._widget.shown) / PAGE_BYTES_PER_S

    def _picture_is_due(self) -> bool:
        state = self.shown_state
        if state.ended:
            return False
        return state is not self._pictured_state or (self._changed and time.monotonic() >= self._picture_due_s)

    # ---- on request --------------------------------------------------------------------------------------------------

    def send_picture(self) -> None:
        """Send the current picture for the document, unless it has the last one."""
        with self._picturing:
            if self._has_ended:
                return
            began_s = time.monotonic()
            self._pictured_state, self._changed = self.shown_state, False
            bundle = self._make_bundle()
            self._widget.send_message({"kind": "picture", "model": self._widget.model_id, "bundle": bundle})
            self._picture_due_s = time.monotonic() + pause_after(began_s, len(bundle["text/html"]))

    def send_history(self, page: str) -> None:
        """Send all remembered log text to a page, or to all pages if ``page`` is empty."""
        with self._sending:
            self._widget.send_message({"kind": "history", "page": page, **self._feed.history()})

    def arrange(self, message: messages.Open | messages.GroupBy) -> None:
        """Show the nodes of a large cluster as a page wants them, from the next view on."""
        if isinstance(message, messages.Open):
            self._table.listing.set_open(message.group, is_open=message.open)
        else:
            self._table.listing.group_by(message.grouping)
        self._view_due_s = 0.0

    def send_end(self, bundle: dict[str, str]) -> None:
        """Send the output that replaces the widget; no picture follows it."""
        with self._picturing:
            self._has_ended = True
            self._widget.send_message({"kind": "end", "model": self._widget.model_id, "bundle": bundle})


# What a node has written before somebody saw its row.
_TAIL_LINES = 20


class FollowedLogs:
    """Picks the events of the nodes that are followed.

    Parameters
    ----------
    cluster : WatchedCluster
        The cluster; its logs are read where a node gets a row later.

    Attributes
    ----------
    is_chosen : bool
        Whether only some nodes are followed.
    """

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
        old = [event for event in events if isinstance(event, LogText) and event.node in known]
        return [*self._tails(new), *old]

    def _tails(self, nodes: Iterable[str]) -> Iterator[Event]:
        for node in nodes:
            if text := self._cluster.logs(node, tail=_TAIL_LINES):
                yield LogText(time_s=time.time(), node=node, stream="stdout", text=f"{text}\n")
