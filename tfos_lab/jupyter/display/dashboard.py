"""The live output of a cell: a widget that draws the cluster, and the thread that feeds it.

The state of the cluster travels as the trait ``view``; log text and points of metrics travel as custom messages, ten
and two a second. When the cell ends, the output is replaced by the static bundle. Until then the page shows the widget,
and the document holds a picture that follows the run: a saved notebook never asks for the widget.

What the two sides say to each other (``static/dashboard.js`` is the other side):

========== ========= ==================================================================================================
to         kind      content
========== ========= ==================================================================================================
front end  log       ``seq``, ``chunks`` of finished lines in order, ``open``: each node's unfinished line
front end  history   the same, of all that is remembered; ``page`` that asked, or empty for all that missed the start
front end  metrics   ``series``: new points of the metrics' lines, or whole lines that are ``fresh``
front end  file      a piece of a node's log as a buffer; ``page``, ``node``, ``offset``, ``size`` of the whole file
front end  picture   ``bundle`` that stands in the document for the widget ``model`` while the run goes on
front end  end       ``bundle`` to put in the place of the widget ``model``
kernel     hello     ``page``: a page has loaded; it gets the history and the picture, or the end
kernel     fetch     ``page`` wants the piece of the log of ``node`` that begins at ``offset``
kernel     stop      end the cluster
========== ========= ==================================================================================================
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import re
import threading
import time
from collections import deque
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from IPython.display import display, update_display

from tfos_lab.engine.state.events import ClusterView, NodeView
from tfos_lab.engine.state.phases import Span, spans_of
from tfos_lab.jupyter.display import summary
from tfos_lab.jupyter.display.base import Display, WatchedCluster, current_kernel
from tfos_lab.jupyter.display.busy_kernel import keep_busy
from tfos_lab.jupyter.display.error_messages import render_error
from tfos_lab.jupyter.display.log_feed import LogFeed
from tfos_lab.jupyter.display.log_files import read_piece
from tfos_lab.jupyter.display.log_links import link_to
from tfos_lab.jupyter.display.series import SeriesBook
from tfos_lab.jupyter.display.static_bundle import make_bundle, style_sheet
from tfos_lab.jupyter.display.throughput import Throughput

logger = logging.getLogger(__name__)

LOG_PERIOD_S = 0.1

# The view is looked at once in so many periods.
VIEW_EVERY = 2
METRICS_EVERY = 5

# Once in so many periods it is said again that the kernel is busy: a page that was loaded meanwhile has not heard it.
BUSY_EVERY = 20

# A run that goes on is looked at so often for the picture in the document; a change of its state is seen at once.
PICTURE_EVERY_S = 3.0
# Taking pictures may take this share of the time, whatever the size of the cluster.
PICTURE_SHARE = 0.05

# Whether or not something has changed, the front end hears so often that the kernel is there; see `static/format.js`.
SIGN_OF_LIFE_S = 5.0

# A page that has not said hello within so many periods cannot be heard (older ipykernel, busy cell): it gets the
# history unasked.
DEAF_AFTER = 20

# Widgets of dashboards that have ended stay so many further ones long.
KEEP_RETIRED = 4

MODULES = (
    "dom.js",
    "format.js",
    "store.js",
    "page.js",
    "stop.js",
    "picture.js",
    "kernel_watch.js",
    "tensorboard.js",
    "header.js",
    "timeline.js",
    "table.js",
    "plot.js",
    "charts.js",
    "fold.js",
    "download.js",
    "logs.js",
    "dashboard.js",
)
_display_numbers = itertools.count(1)
_retired: deque[DashboardWidget] = deque()


@cache
def compose_module() -> str:
    """Return the modules of ``static/`` as the one ES module that anywidget takes."""
    folder = resources.files("tfos_lab.jupyter.display") / "static"
    parts = []
    for name in MODULES:
        text = (folder / name).read_text("utf-8")
        text = re.sub(r"^import\b[^;]*;\n", "", text, flags=re.MULTILINE)
        parts.append(re.sub(r"^export (?!default)", "", text, flags=re.MULTILINE))
    return "\n".join(parts)


class DashboardWidget(anywidget.AnyWidget):
    """The widget behind the dashboard; `Dashboard` owns it."""

    _esm = compose_module()
    _css = style_sheet("theme.css", "summary.css", "dashboard.css")

    view = traitlets.Dict().tag(sync=True)
    display_key = traitlets.Unicode().tag(sync=True)
    blocking = traitlets.Bool(default_value=True).tag(sync=True)
    kernel_id = traitlets.Unicode().tag(sync=True)

    fallback: dict[str, str]

    def close_with_layout(self) -> None:
        """Close the widget, and the layout that came with it."""
        layout = self.layout
        self.close()
        layout.close()

    def _repr_mimebundle_(self, **kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
        made = super()._repr_mimebundle_(**kwargs)
        if made is None:
            return None
        # A front end without widgets shows the picture of now, and gets the one of the end like all others.
        return {**made[0], **self.fallback}, made[1]


class Dashboard(Display):
    """Shows a cluster live until it is closed.

    Parameters
    ----------
    cluster : Cluster
        The cluster to watch.
    blocking : bool
        Whether the cell waits and will close the dashboard; if not, it closes itself when the cluster has ended.
    """

    def __init__(self, cluster: WatchedCluster, *, blocking: bool = True) -> None:
        self._cluster = cluster
        self._blocking = blocking
        self._id = f"tfos-{cluster.id}-{next(_display_numbers)}"
        self._subscription = cluster.bus.subscribe()
        self._feed = LogFeed()
        self._throughput = Throughput()
        self._metrics = SeriesBook(cluster.view().started_s)
        self._reports_seen = 0
        self._sending = threading.Lock()
        self._closing = threading.Event()
        self._closed = threading.Lock()
        self._greeted = False
        self._ending: dict[str, str] | None = None
        self._shown: dict[str, Any] = {}
        self._shown_s = 0.0
        self._pictured = ""
        self._changed = True
        self._picture_due_s = 0.0
        self._stopper: threading.Thread | None = None
        self._busy = keep_busy(current_kernel())
        self._widget = self._open_widget()
        self._pump = threading.Thread(target=self._run, name=f"tfos-display-{cluster.id}", daemon=True)
        self._pump.start()

    def close(self) -> None:
        """Send what is left, put the static bundle in the dashboard's place, and end the thread."""
        if not self._closed.acquire(blocking=False):
            return
        self._closing.set()
        try:
            self._finish_pump()
        finally:
            # Also when a second interrupt comes in the middle: a widget must not stay behind in the notebook.
            self._ending = self._bundle()
            update_display(  # type: ignore[no-untyped-call]
                self._ending, display_id=self._id, raw=True, metadata=self._metadata()
            )
            self._send_end(self._ending)
            _retire(self._widget)

    def _finish_pump(self) -> None:
        if self._pump is not threading.current_thread():
            self._pump.join(timeout=5.0)
        self._update(with_view=True, with_metrics=True)
        self._subscription.close()
        if self._stopper is not None:
            self._stopper.join(timeout=1.0)

    def _open_widget(self) -> DashboardWidget:
        view = self._cluster.view()
        widget = DashboardWidget(
            view=self._encode(view),
            display_key=self._id,
            blocking=self._blocking,
            kernel_id=_kernel_id(),
        )
        widget.fallback = self._bundle()
        widget.on_msg(self._take_message)
        _receive_while_busy(widget)
        display(widget, display_id=self._id, metadata=self._metadata())  # type: ignore[no-untyped-call]
        return widget

    def _metadata(self) -> dict[str, Any]:
        """By this a page that was loaded again finds the output."""
        return {"tfos_lab": {"display": self._id}}

    def _encode(self, view: ClusterView) -> dict[str, Any]:
        now_s = time.time()
        self._throughput.note(view, now_s)
        return encode_view(view, str(self._cluster.run_dir), now_s, self._throughput)

    def _bundle(self) -> dict[str, str]:
        reports, _ = self._cluster.reports_after(0)
        view = self._cluster.view()
        # A cell that waits raises the error itself.
        error = "" if self._blocking or view.state != "failed" else "\n".join(render_error(self._cluster.failure()))
        return make_bundle(view, self._read_tail, self._cluster.run_dir, reports, error, link_of=self._link_to_log)

    def _read_tail(self, node: str, lines: int) -> str:
        return self._cluster.logs(node, tail=lines)

    def _link_to_log(self, node: str) -> str | None:
        return link_to(self._cluster.log_path(node))

    # The pump.

    def _run(self) -> None:
        for beat in itertools.count(1):
            if self._closing.wait(LOG_PERIOD_S):
                return
            self._update(with_view=beat % VIEW_EVERY == 0, with_metrics=beat % METRICS_EVERY == 0)
            if self._busy is not None and beat % BUSY_EVERY == 0:
                self._busy.repeat()
            if beat == DEAF_AFTER and not self._greeted:
                self._send_history("")
            if not self._blocking and self._shown.get("state") in summary.ENDED_STATES:
                self.close()

    def _update(self, *, with_view: bool, with_metrics: bool) -> None:
        try:
            self._send_logs()
            if with_view:
                self._send_view()
            if with_metrics:
                self._send_metrics()
            if with_view and self._picture_is_due():
                self._send_picture()
        except Exception:
            logger.exception("the dashboard of cluster %s missed an update", self._cluster.id)

    def _send_logs(self) -> None:
        self._feed.take_in_all(self._subscription.take())
        self._feed.lost_events(self._subscription.take_dropped())
        with self._sending:
            batch = self._feed.take_out()
            if batch is not None:
                self._changed = True
                self._widget.send({"kind": "log", **batch})

    def _send_view(self) -> None:
        encoded = self._encode(self._cluster.view())
        now_s = encoded.pop("now_s")
        if encoded != self._shown or now_s - self._shown_s > SIGN_OF_LIFE_S:
            self._changed = self._changed or encoded != self._shown
            self._shown, self._shown_s = encoded, now_s
            self._widget.view = {**encoded, "now_s": now_s}

    def _send_metrics(self) -> None:
        reports, self._reports_seen = self._cluster.reports_after(self._reports_seen)
        with self._sending:
            self._metrics.add(reports)
            series = self._metrics.take()
            if series:
                self._widget.send({"kind": "metrics", "series": series})

    def _picture_is_due(self) -> bool:
        state = self._shown.get("state", "")
        if self._closing.is_set() or state in summary.ENDED_STATES:
            return False
        return state != self._pictured or (self._changed and time.monotonic() >= self._picture_due_s)

    def _send_picture(self) -> None:
        began_s = time.monotonic()
        self._pictured, self._changed = self._shown.get("state", ""), False
        self._widget.send({"kind": "picture", "model": self._widget.model_id, "bundle": self._bundle()})
        ended_s = time.monotonic()
        self._picture_due_s = ended_s + max(PICTURE_EVERY_S, (ended_s - began_s) / PICTURE_SHARE)

    def _send_history(self, page: str) -> None:
        with self._sending:
            self._widget.send({"kind": "history", "page": page, **self._feed.history()})
            self._widget.send({"kind": "metrics", "series": self._metrics.history()})

    def _send_piece(self, page: str, node: str, offset: int) -> None:
        with contextlib.suppress(KeyError):  # no node of ours
            data, size = read_piece(self._cluster.log_path(node), offset)
            piece = {"kind": "file", "page": page, "node": node, "offset": offset, "size": size}
            self._widget.send(piece, [data])

    def _send_end(self, bundle: dict[str, str]) -> None:
        self._widget.send({"kind": "end", "model": self._widget.model_id, "bundle": bundle})

    # What the front end says; called by the main thread, or by a subshell's.

    def _take_message(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        match content:
            case {"kind": "hello", "page": str(page)}:
                self._greeted = True
                if self._ending is None:
                    self._send_history(page)
                    self._send_picture()
                else:
                    self._send_end(self._ending)
            case {"kind": "fetch", "page": str(page), "node": str(node), "offset": int(offset)}:
                self._send_piece(page, node, offset)
            case {"kind": "stop"}:
                self._stop_cluster()

    def _stop_cluster(self) -> None:
        # Stopping may take as long as the nodes' grace: not on the thread that reads messages.
        if self._stopper is None or not self._stopper.is_alive():
            name = f"tfos-stop-{self._cluster.id}"
            self._stopper = threading.Thread(target=self._run_stop, name=name, daemon=True)
            self._stopper.start()

    def _run_stop(self) -> None:
        try:
            self._cluster.stop()
        except Exception:
            logger.exception("cluster %s could not be stopped", self._cluster.id)


def encode_view(view: ClusterView, run_dir: str, now_s: float, throughput: Throughput | None = None) -> dict[str, Any]:
    """Return the view as the front end takes it: words and numbers are made here, times are the kernel's clock."""
    view = summary.with_endings(view)
    columns = summary.node_columns(view, throughput)
    broken = dict(summary.broken_nodes(view))
    return {
        "id": view.cluster_id,
        "name": view.name,
        "state": view.state,
        "reason": view.reason,
        "notes": list(view.notes),
        "headline": summary.headline(view),
        "spans": [_encode_span(span) for span in spans_of(view, now_s)],
        "feed": _encode_feeds(view, throughput),
        "spark_ui": view.spark_ui,
        "tensorboard": {"state": view.tensorboard.state, "reason": view.tensorboard.reason}
        if view.tensorboard is not None
        else None,
        "started_s": view.started_s,
        "ended_s": view.ended_s,
        "now_s": now_s,
        "run_dir": run_dir,
        "bar": summary.progress_column(view),
        "columns": [
            {"key": column.key, "title": column.title, "numeric": column.numeric, "rank": column.rank}
            for column in columns
        ],
        "rows": [{**_encode_node(node, view, columns), "broken": broken.get(node.node, "")} for node in view.nodes],
    }


def _encode_span(span: Span) -> dict[str, Any]:
    end_s = None if span.open else span.end_s
    return {"name": span.name, "kind": span.kind, "start_s": span.start_s, "end_s": end_s, "track": span.track}


def _encode_feeds(view: ClusterView, throughput: Throughput | None) -> dict[str, Any] | None:
    """Return the last feed, and a line for each one before it."""
    if not view.feeds:
        return None
    last = view.feeds[-1]
    *older, line = summary.feed_lines(view, throughput)
    return {
        "older": older,
        "line": line,
        "shares": summary.feed_shares(last),
        "progress": summary.feed_progress(last),
        "complete": last.complete,
    }


def _encode_node(node: NodeView, view: ClusterView, columns: list[summary.Column]) -> dict[str, Any]:
    return {
        "node": node.node,
        "state": node.state,
        "detail": node.detail,
        "cells": {column.key: column.text(node) for column in columns},
        "progress": summary.progress(node, view.feeds),
        "heartbeat_s": node.last_beat_s,
    }


def _retire(widget: DashboardWidget) -> None:
    """Close the widget some time later.

    A page that was loaded again while a cell blocked asks for its widgets only when the cell has ended. It must still
    find this one, to be told of its end.
    """
    _retired.append(widget)
    while len(_retired) > KEEP_RETIRED:
        _retired.popleft().close_with_layout()


def _receive_while_busy(widget: DashboardWidget) -> None:
    """Let the front end's messages reach us while a cell blocks.

    ipykernel 7.4 sends what comes in on a comm to the shell that last published on it, which is the busy one; without
    this attribute it goes where the front end sent it: to a subshell.
    """
    if hasattr(widget.comm, "_reply_subshell_for"):
        widget.comm._reply_subshell_for = None  # noqa: SLF001 - there is no public way


def _kernel_id() -> str:
    """Return the id by which the Jupyter server knows this kernel, from its connection file's name."""
    if current_kernel() is None:
        return ""
    from ipykernel.connect import get_connection_file

    try:
        name = Path(get_connection_file()).stem
    except (RuntimeError, OSError):
        return ""
    return name.removeprefix("kernel-") if name.startswith("kernel-") else ""
