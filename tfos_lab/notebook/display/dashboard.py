"""The live output of a cell: a widget that draws the cluster, and the thread that updates it.

The parts of the card, which Python draws, travel as traits, and so does the ``view``, what the page goes by beside
them; log text travels as custom messages, ten a second. When the cell ends, the output is replaced by the static
bundle. Until then the page shows the widget, and the document holds a picture that follows the run: a saved notebook
never asks for the widget.

to         kind      content
========== ========= ==================================================================================================
front end  log       ``seq``, ``chunks`` of finished lines in order, ``open``: each node's unfinished line
front end  history   the same, of all that is remembered; ``page`` that asked, or empty for all that missed the start
front end  picture   ``bundle`` that stands in the document for the widget ``model`` while the run goes on
front end  end       ``bundle`` that replaces the widget ``model``
kernel     hello     ``page``: a page has loaded; it gets the history and the picture, or the end
kernel     stacks    somebody asks where the threads of ``node`` are
kernel     open      list the nodes of a group of a large cluster, or only count them
kernel     group_by  group the nodes of a large cluster by something else
kernel     stop      end the cluster
========== ========= ==================================================================================================

Both kinds are declared in `messages`; ``extensions/dashboard`` is the other side.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from typing import Any

import msgspec
from IPython.display import display, update_display

from tfos_lab.notebook.display import messages
from tfos_lab.notebook.display.base import Display, WatchedCluster
from tfos_lab.notebook.display.card import traits
from tfos_lab.notebook.display.kernel import NoProgressBars, current_kernel, kernel_id
from tfos_lab.notebook.display.log_files import ServedLogs
from tfos_lab.notebook.display.stacks import NodeStacks, StacksReader, render_stacks
from tfos_lab.notebook.display.static_bundle import bundle_of
from tfos_lab.notebook.display.table import LiveTable
from tfos_lab.notebook.display.updates import Updates
from tfos_lab.notebook.display.widget import DashboardWidget, retire

logger = logging.getLogger(__name__)

LOG_PERIOD_S = 0.1

# In periods: how often the view and the charts are sent.
VIEW_EVERY = 2
CHARTS_EVERY = 10

# In periods: how often the kernel is announced as busy again, for pages that were loaded since the last time.
BUSY_EVERY = 20

# In periods: a page that has not sent its hello by then cannot reach us (older ipykernel, busy cell), and gets the
# history unasked.
UNREACHABLE_AFTER = 20

_display_numbers = itertools.count(1)


class Dashboard(Display):
    """Shows a cluster live until it is closed.

    Parameters
    ----------
    cluster : WatchedCluster
        The cluster to watch.
    blocking : bool
        Whether the cell waits and will close the dashboard; if not, it closes itself when the cluster has ended.
    """

    def __init__(self, cluster: WatchedCluster, *, blocking: bool = True) -> None:
        self._cluster = cluster
        self._blocking = blocking
        self._id = f"tfos-{cluster.id}-{next(_display_numbers)}"
        # A page that was reloaded finds the output by this.
        self._metadata = {"tfos_lab": {"display": self._id}}
        self._closing = threading.Event()
        self._closed = threading.Lock()
        self._greeted = False
        self._end_bundle: dict[str, str] | None = None
        self._stopper: threading.Thread | None = None
        self._busy = keep_busy(current_kernel())
        self._no_bars = NoProgressBars(current_kernel()) if blocking else None
        subscription = cluster.bus.subscribe()
        self._stacks = StacksReader(cluster)
        self._told_stacks: list[NodeStacks] = []
        self._served = ServedLogs(cluster)
        self._table = LiveTable(can_ask=self._stacks.can_ask)
        self._widget = self._make_widget()
        self._updates = Updates(
            cluster, subscription, self._widget, self._table, served=self._served, make_bundle=self._make_bundle
        )
        self._widget.receive(self._on_message)
        display(self._widget, display_id=self._id, metadata=self._metadata)  # type: ignore[no-untyped-call]
        self._pump = threading.Thread(target=self._run, name=f"tfos-display-{cluster.id}", daemon=True)
        self._pump.start()

    def close(self) -> None:
        """Send what is left, replace the dashboard by the static bundle, and end the thread."""
        if not self._closed.acquire(blocking=False):
            return
        self._closing.set()
        try:
            self._finish_pump()
        finally:
            # Also when a second interrupt comes in the middle: a widget must not stay behind in the notebook.
            self._end_bundle = self._make_bundle()
            update_display(  # type: ignore[no-untyped-call]
                self._end_bundle, display_id=self._id, raw=True, metadata=self._metadata
            )
            self._updates.send_end(self._end_bundle)
            retire(self._widget)
            if self._no_bars is not None:
                self._no_bars.close()

    def _finish_pump(self) -> None:
        if self._pump is not threading.current_thread():
            self._pump.join(timeout=5.0)
        self._updates.send_last()
        self._updates.close()
        self._stacks.close()
        if self._stopper is not None:
            self._stopper.join(timeout=1.0)

    def _make_widget(self) -> DashboardWidget:
        view = self._cluster.view()
        widget = DashboardWidget(
            **traits(view, time.time(), self._table, str(self._cluster.run_dir), self._served.path_of),
            display_key=self._id,
            blocking=self._blocking,
            kernel_id=kernel_id(),
        )
        widget.fallback = self._make_bundle()
        return widget

    def _make_bundle(self) -> dict[str, str]:
        return bundle_of(self._cluster, raises=self._blocking, stacks=self._stacks.answers)

    # ---- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        for period in itertools.count(1):
            if self._closing.wait(LOG_PERIOD_S):
                return
            with_view = period % VIEW_EVERY == 0
            self._updates.send(
                with_view=with_view,
                with_charts=period % CHARTS_EVERY == 0,
                with_picture=with_view and not self._closing.is_set(),
            )
            if (stacks := self._stacks.answers) != self._told_stacks:
                self._told_stacks, self._widget.stacks = stacks, render_stacks(stacks)
            if self._busy is not None and period % BUSY_EVERY == 0:
                self._busy.repeat()
            if period == UNREACHABLE_AFTER and not self._greeted:
                self._updates.send_history("")
            if not self._blocking and self._updates.shown_state.ended:
                self.close()

    # ---- messages of the front end; they come on the main thread, or on a subshell's --------------------------------

    def _on_message(self, content: object) -> None:
        try:
            message = msgspec.convert(content, messages.KernelMessage)
        except msgspec.ValidationError:
            return
        match message:
            case messages.Hello(page=page):
                self._greet(page)
            case messages.Stacks(node=node):
                self._stacks.ask(node)
            case messages.Open() | messages.GroupBy():
                self._updates.arrange(message)
            case messages.Stop():
                self._stop_cluster()

    def _greet(self, page: str) -> None:
        self._greeted = True
        if self._end_bundle is not None:
            self._updates.send_end(self._end_bundle)
            return
        self._updates.send_history(page)
        self._updates.send_picture()

    def _stop_cluster(self) -> None:
        # Stopping may take the nodes' whole grace period: not on the thread that reads messages.
        if self._stopper is None or not self._stopper.is_alive():
            name = f"tfos-stop-{self._cluster.id}"
            self._stopper = threading.Thread(target=self._run_stop, name=name, daemon=True)
            self._stopper.start()

    def _run_stop(self) -> None:
        try:
            self._cluster.stop()
        except Exception:
            logger.exception("cluster %s could not be stopped", self._cluster.id)


_MARK = "tfos_lab_busy"
# One of the server's `untracked_message_types`, which JupyterLab ignores too.
_UNTRACKED = "comm_info_request"


class BusyKernel:
    """Corrects the announcements of a kernel.

    Parameters
    ----------
    kernel : ipykernel.kernelbase.Kernel
        The kernel; its ``_publish_status`` is replaced.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._publish = kernel._publish_status  # noqa: SLF001 - there is no public way
        # The end of a cell must not come between another channel's `idle` and the `busy` that follows it.
        self._lock = threading.RLock()
        self._running: Any = kernel.get_parent("shell") if _on_main_thread() else None
        kernel._publish_status = self._announce  # noqa: SLF001 - the same

    def repeat(self) -> None:
        """Announce again that the kernel is busy, if it is: for pages that were loaded since the last time."""
        with self._lock:
            if self._running:
                self._publish("busy", "shell", parent=self._running)

    def _announce(self, status: str, channel: str, parent: Any = None) -> None:
        with self._lock:
            if parent is None and channel == "shell" and _on_main_thread():
                self._publish(status, channel)
                self._running = self._kernel.get_parent("shell") if status == "busy" else None
                return
            parent = parent or self._kernel.get_parent(channel)
            self._publish(status, channel, parent=_untracked(parent) if self._running else parent)
            if status == "idle":
                self.repeat()


def _untracked(parent: dict[str, Any]) -> dict[str, Any]:
    """Return a request with the same id, of a type that does not count as activity."""
    return {**parent, "header": {**parent.get("header", {}), "msg_type": _UNTRACKED}}


def keep_busy(kernel: Any) -> BusyKernel | None:
    """Correct the announcements of a kernel, once in its life; None for a kernel that works differently."""
    if not hasattr(kernel, "_publish_status"):
        return None
    if not hasattr(kernel, _MARK):
        setattr(kernel, _MARK, BusyKernel(kernel))
    busy: BusyKernel = getattr(kernel, _MARK)
    return busy


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
