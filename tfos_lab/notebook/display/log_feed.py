"""Log text for the browser: events go in, bounded batches come out. Pure: no I/O, no clock.

A batch holds what has arrived since the last one, in order, joined into as few chunks as possible: the browser makes
one text node of each, and one element of each piece that has a style. What is too much is dropped, oldest first, and
counted; the files are complete.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections import Counter, deque
from collections.abc import Iterable
from typing import TypedDict

from tfos_lab.driver.state.events import Event, LogText
from tfos_lab.notebook.display.log_text import LineBuffer, Run, count_lines, fold_repeats, html_text, merge_runs

# The most that one batch holds of one node, and of all; if there is more, the oldest lines are skipped unread. A page
# keeps no more than 5,000 lines of a node anyway.
MAX_NODE_LINES = 2_000
MAX_LINES = 8_000
MAX_CHARS = 400_000

# Up to this many chunks stay in the order of arrival; a larger batch is sorted by node.
MAX_CHUNKS = 24

# Lines that a page gets if it loads later.
HISTORY_LINES = 4_000


class Chunk(TypedDict):
    """Finished lines of one node, ``lines`` before repeats were folded; ``note`` names what was dropped before them.

    No element of the HTML goes over the end of a line.
    """

    node: str
    html: str
    lines: int
    note: str


class LogBatch(TypedDict):
    """Chunks in order, and the unfinished line of each node where it has changed."""

    seq: int
    chunks: list[Chunk]
    open: dict[str, str]


class LogHistory(LogBatch):
    """All remembered text, and how many earlier lines of each node are forgotten."""

    forgotten: dict[str, int]


class LogFeed:
    """Collects log events between two batches, and remembers the last lines for pages that load later.

    The two streams of a node are separate until their lines are finished, so that neither splits a line of the other.
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, str], LineBuffer] = {}
        self._streams: dict[str, dict[str, None]] = {}
        self._batch: list[tuple[str, list[Run]]] = []
        self._touched: dict[str, str] = {}
        self._open: dict[str, str] = {}
        self._dropped_events = 0
        self._skipped = Counter[str]()
        self._seq = 0
        self._history: deque[Chunk] = deque()
        self._history_lines = 0
        self._forgotten = Counter[str]()

    def take_in_all(self, events: Iterable[Event]) -> None:
        """Add events; of a flood only the newest text, so that rendering stays cheap whatever a node prints."""
        texts = [event for event in events if isinstance(event, LogText)]
        count = max(1, len({event.node for event in texts}))
        lines, chars = Counter[str](), Counter[str]()
        for event in texts:
            lines[event.node] += event.text.count("\n")
            chars[event.node] += len(event.text)
        for node in lines:
            lines[node] -= max(100, min(MAX_NODE_LINES, MAX_LINES // count))
            chars[node] -= MAX_CHARS // count
        for event in texts:
            end = _end_of_excess(event.text, lines[event.node], chars[event.node])
            if end:
                skipped = event.text.count("\n", 0, end)
                lines[event.node] -= skipped
                chars[event.node] -= end
                self._skipped[event.node] += skipped
                # The open line ended somewhere in the skipped part.
                self._buffers.pop((event.node, event.stream), None)
            self.take_in(dataclasses.replace(event, text=event.text[end:]) if end else event)

    def take_in(self, event: Event) -> None:
        """Add one event; all but log text is ignored."""
        if not isinstance(event, LogText):
            return
        key = (event.node, event.stream)
        if key not in self._buffers:
            self._buffers[key] = LineBuffer()
            self._streams.setdefault(event.node, {})[event.stream] = None
        runs = self._buffers[key].feed(event.text)
        self._touched[event.node] = event.stream
        if runs:
            self._batch.append((event.node, runs))

    def add_dropped(self, count: int) -> None:
        """Add how many events the bus has dropped."""
        self._dropped_events += count

    def take_out(self) -> LogBatch | None:
        """Return the batch to send now, or None when nothing is new."""
        chunks = self._take_chunks()
        opened = self._take_open()
        if not chunks and not opened:
            return None
        self._history.extend(chunks)
        self._history_lines += sum(chunk["lines"] for chunk in chunks)
        while len(self._history) > 1 and self._history_lines > HISTORY_LINES:
            gone = self._history.popleft()
            self._history_lines -= gone["lines"]
            self._forgotten[gone["node"]] += gone["lines"]
        self._seq += 1
        return {"seq": self._seq, "chunks": chunks, "open": opened}

    def history(self) -> LogHistory:
        """Return all remembered text."""
        return {
            "seq": self._seq,
            "chunks": list(self._history),
            "open": dict(self._open),
            "forgotten": dict(self._forgotten),
        }

    def _take_chunks(self) -> list[Chunk]:
        batch = _join_neighbours(self._batch)
        if len(batch) > MAX_CHUNKS:
            order = {node: place for place, node in enumerate(dict.fromkeys(node for node, _ in batch))}
            batch = _join_neighbours(sorted(batch, key=lambda one: order[one[0]]))
        self._batch = []
        chunks: list[Chunk] = []
        for node, runs in batch:
            skipped = self._skipped.pop(node, 0)
            note = f"{skipped:,} lines dropped here" if skipped else ""
            html = html_text(fold_repeats(runs))
            chunks.append({"node": node, "html": html, "lines": count_lines(runs), "note": note})
        if self._dropped_events and chunks:
            lost = f"{self._dropped_events:,} pieces of text dropped here"
            chunks[0]["note"] = "; ".join(note for note in (lost, chunks[0]["note"]) if note)
            self._dropped_events = 0
        return chunks

    def _take_open(self) -> dict[str, str]:
        opened: dict[str, str] = {}
        for node, stream in self._touched.items():
            # That of the stream that was written to last, or else of the other.
            lines = (self._buffers[node, one].open_line for one in (stream, *self._streams[node]))
            html = html_text(next(filter(None, lines), []))
            if html != self._open.get(node, ""):
                opened[node] = self._open[node] = html
        self._touched.clear()
        return opened


def _join_neighbours(batch: Iterable[tuple[str, list[Run]]]) -> list[tuple[str, list[Run]]]:
    by_node = itertools.groupby(batch, key=operator.itemgetter(0))
    return [(node, merge_runs(run for _, runs in some for run in runs)) for node, some in by_node]


def _end_of_excess(text: str, lines: int, chars: int) -> int:
    """Return where a line ends so that at least so many lines, and so many characters, are before; or the end."""
    end = 0
    if lines > 0:
        first = text.split("\n", lines)[:lines]
        end = min(len(text), sum(map(len, first)) + len(first))
    return max(end, text.find("\n", chars) + 1 or len(text)) if chars > 0 else end
