"""Displays where there are no widgets: the card drawn again while the run goes on, or lines such as ``[worker:1] …``.

The lines are for nbclient and papermill, scripts and terminals; the main thread writes them, in `TextDisplay.poll`.
"""

from __future__ import annotations

import itertools
import logging
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator

from IPython.display import display, update_display

from tfos_lab.core.threads import on_a_thread
from tfos_lab.driver.state.events import LogText, MetricsReported, NodeChanged, StateChanged
from tfos_lab.notebook.display import Display, WatchedCluster, summary
from tfos_lab.notebook.display.card import PICTURE_EVERY_S, Pace, bundle_of, render_text
from tfos_lab.notebook.display.kernel import NoProgressBars, current_kernel
from tfos_lab.notebook.display.log_text import LineBuffer, plain_text

logger = logging.getLogger(__name__)


# ---- pictures -------------------------------------------------------------------------------------------------------

_numbers = itertools.count(1)
# How long nodes may take to end after their cell has: their `grace`, as a rule.
_ENDS_S = 60.0
_ENDS_POLL_S = 0.2


class RedrawnCard(Display):
    """Shows a cluster by pictures, one in the place of the other, until it is closed; `Dashboard` shows more meanwhile.

    If the cell does not wait for it (``blocking``), it closes itself when the cluster has ended; ``folds_error`` is
    that of `open_display`.
    """

    def __init__(self, cluster: WatchedCluster, *, blocking: bool = True, folds_error: bool = False) -> None:
        self._cluster = cluster
        self._blocking = blocking
        self._folds_error = folds_error
        # By its beginning JupyterLab's panel finds the cell of a run.
        self._id = f"tfos-{cluster.id}-{next(_numbers)}"
        # A page that was reloaded finds the output by this.
        self._metadata = {"tfos_lab": {"display": self._id}}
        self._closing = threading.Event()
        self._closed = threading.Lock()
        self._no_bars = NoProgressBars(current_kernel())
        self._begin()
        self._thread = threading.Thread(target=self._run, name=f"tfos-display-{cluster.id}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, and draw the cluster as it has ended; nothing else follows."""
        if not self._closed.acquire(blocking=False):
            return
        self._closing.set()
        try:
            if self._thread is not threading.current_thread():
                self._thread.join(timeout=5.0)
            self._finish()
        finally:
            # Also when a second interrupt comes in the middle: a widget must not stay behind in the notebook.
            is_stopping, bundle = self._is_stopping(), self._bundle()
            self._replace(bundle)
            self._no_bars.close()
            if is_stopping:
                on_a_thread(lambda: self._draw_ends(bundle), name="tfos-ends")

    def _begin(self) -> None:
        display(self._bundle(), raw=True, display_id=self._id, metadata=self._metadata)  # type: ignore[no-untyped-call]

    def _run(self) -> None:
        """Show what happens, on the thread, until it is to be closed."""
        pace = Pace(PICTURE_EVERY_S)
        while not self._closing.wait(pace.wait_s):
            pace.draw(self._draw)
            if not self._blocking and self._cluster.view().state.ended:
                self.close()

    def _is_stopping(self) -> bool:
        view = self._cluster.view()
        return view.state.ended and any(node.state.is_present for node in view.nodes)

    def _draw_ends(self, shown: dict[str, str]) -> None:
        """Draw the card once more when the last nodes of a failed run have ended, which the cell does not wait for.

        Not if it has not changed: that would close what its reader has unfolded.
        """
        until_s = time.monotonic() + _ENDS_S
        while self._is_stopping() and time.monotonic() < until_s:
            time.sleep(_ENDS_POLL_S)
        if (bundle := self._bundle()) != shown:
            self._replace(bundle)

    def _finish(self) -> None:
        """Show what is left, once the thread has ended."""

    def _replace(self, bundle: dict[str, str]) -> None:
        update_display(bundle, raw=True, display_id=self._id, metadata=self._metadata)  # type: ignore[no-untyped-call]

    def _draw(self) -> int:
        """Draw the cluster as it is now, and return the picture's size; an error is logged and loses this one only."""
        try:
            bundle = self._bundle()
            if not self._closing.is_set():
                self._replace(bundle)
        except Exception:
            logger.exception("cluster %s was not drawn", self._cluster.id)
            return 0
        return len(bundle["text/html"])

    def _bundle(self) -> dict[str, str]:
        return bundle_of(self._cluster, raises=self._blocking, folds_error=self._folds_error, asks=False)


# ---- lines of text ---------------------------------------------------------------------------------------------------

# Each node may write this many lines at once, and this many per second on average; further ones are only counted.
BURST_LINES = 100
LINES_PER_S = 20.0
METRICS_EVERY_S = 10.0
LAST_LINES = 5
LOOK_EVERY_S = 1.0

_FIGURES = re.compile(r"[\d.,]+")


class TextDisplay(Display):
    """Writes lines while the cell waits for it, and the summary at the end; else a first line and the summary."""

    def __init__(self, cluster: WatchedCluster, *, blocking: bool = True) -> None:
        self._cluster = cluster
        self._out: list[str] = []
        self._nodes: dict[str, _NodeLines] = {}
        self._metrics_due: dict[str, float] = {}
        self._look_due = 0.0
        self._said: dict[str, str] = {}
        self._closed = False
        self._subscription = cluster.bus.subscribe() if blocking else None
        if not blocking:
            self._out.append(f"[{cluster.name}] runs in the background; %tfos shows its state")
            self._write()

    def poll(self) -> None:
        """Write what has arrived since the last call."""
        if self._subscription is None:
            return
        events = self._subscription.take()
        for event in events:
            match event:
                case LogText(node=node, text=text):
                    lines = self._nodes.setdefault(node, _NodeLines(node))
                    self._out += lines.add(text, time.monotonic())
                case MetricsReported(node=node) if time.monotonic() >= self._metrics_due.get(node, 0.0):
                    self._metrics_due[node] = time.monotonic() + METRICS_EVERY_S
                    total = f"/{event.total_steps}" if event.total_steps else ""
                    step = f"step {event.step}{total} · " if event.step is not None else ""
                    self._out.append(f"[{node}] {step}{summary.format_metrics(event.metrics)}")
                case StateChanged():
                    self._add_state()
        # Once for all of them: the view of very many nodes takes a while.
        if any(isinstance(event, NodeChanged) for event in events):
            self._add_state()
        self._look()
        if dropped := self._subscription.take_dropped():
            self._out.append(f"… {dropped:,} events came too fast and are not shown here; the files are complete")
        self._write()

    def close(self) -> None:
        """Write what is left, then the summary."""
        if self._closed:
            return
        self._closed = True
        self.poll()
        for lines in self._nodes.values():
            self._out += lines.finish()
        if self._subscription is not None:
            self._subscription.close()
        if current_kernel() is None:
            self._out.append(render_text(self._cluster.view(), self._cluster.run_dir))
        self._write()
        if current_kernel() is not None:
            display(bundle_of(self._cluster, raises=True), raw=True)  # type: ignore[no-untyped-call]

    def _write(self) -> None:
        if self._out:
            sys.stdout.write("\n".join(self._out) + "\n")
            sys.stdout.flush()
            self._out.clear()

    def _add_state(self) -> None:
        view = self._cluster.view()
        reason = f": {view.reason}" if view.reason else ""
        text = f"{view.state}, {summary.headline(view)}{reason}"
        self._say("state", text, f"[{view.name}] {text}")

    def _look(self) -> None:
        """Add why training is slow, what is not a number, and which nodes hang, where that has changed."""
        if time.monotonic() < self._look_due:
            return
        self._look_due = time.monotonic() + LOOK_EVERY_S
        view = self._cluster.view()
        progress = summary.progress_text(view)
        # Its figures change all the time.
        told = " · ".join(filter(None, (progress, view.verdict)))
        self._say("verdict", _FIGURES.sub("", view.verdict), f"[{view.name}] {told}")
        self._say("alarm", view.alarm, f"[{view.name}] {view.alarm}")
        for node in view.nodes:
            self._say(node.name, "hangs" if summary.hangs(node) else "", f"[{node.name}] hangs: {node.hung}")

    def _say(self, about: str, kind: str, text: str) -> None:
        """Add a text, unless what was said last about this was of the same kind."""
        if kind and kind != self._said.get(about):
            self._out.append(text)
        self._said[about] = kind


class _NodeLines:
    """The lines of one node, limited per second."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._buffer = LineBuffer()
        self._allowed = float(BURST_LINES)
        self._since_s: float | None = None
        self._skipped: deque[str] = deque(maxlen=LAST_LINES)
        self._skipped_count = 0

    def add(self, text: str, now_s: float) -> list[str]:
        """Return the lines to write now."""
        if self._since_s is not None:
            self._allowed = min(BURST_LINES, self._allowed + (now_s - self._since_s) * LINES_PER_S)
        self._since_s = now_s
        return list(self._limited(plain_text(self._buffer.feed(text))))

    def finish(self) -> list[str]:
        """Return the last lines: unfinished ones, and how many were not shown."""
        out = list(self._limited(plain_text(self._buffer.flush())))
        if not self._skipped_count:
            return out
        last = [f"[{self._node}] {line}" for line in self._skipped]
        return [*out, *self._not_shown(self._skipped_count - len(last)), *last]

    def _limited(self, text: str) -> Iterator[str]:
        for line in filter(str.strip, text.splitlines()):
            if self._allowed < 1:
                self._skipped.append(line)
                self._skipped_count += 1
                continue
            self._allowed -= 1
            yield from self._not_shown(self._skipped_count)
            self._skipped_count = 0
            self._skipped.clear()
            yield f"[{self._node}] {line}"

    def _not_shown(self, count: int) -> Iterator[str]:
        if count > 0:
            yield f"[{self._node}] … {count:,} lines not shown here; the file is complete"
