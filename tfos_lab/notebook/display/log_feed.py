"""Log text for the browser: events go in, bounded batches come out. Pure: no I/O, no clock.

A batch holds what has arrived since the last one, in order, joined into as few chunks as possible: the browser makes
one text node of each. What is too much is dropped, oldest first, and counted; the files are complete.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypedDict

from tfos_lab.driver.state.events import Event, LogText
from tfos_lab.notebook.display.log_text import LineBuffer, Run, count_lines, fold_repeats, last_lines, merge_runs

# The most that one batch holds of one node, and of all. A page keeps no more than 5,000 lines of a node anyway.
MAX_NODE_LINES = 2_000
MAX_LINES = 8_000
MAX_CHARS = 800_000

# This many characters are rendered between two batches; if there are more, the oldest are skipped unread.
MAX_READ = 400_000

# Up to this many chunks stay in the order of arrival; a larger batch is sorted by node.
MAX_CHUNKS = 24

# Lines that a page gets if it loads later.
HISTORY_LINES = 4_000


class Chunk(TypedDict):
    """Finished lines of one node, ``lines`` before repeats were folded; ``note`` names what was dropped before them."""

    node: str
    runs: list[Run]
    lines: int
    note: str


class LogBatch(TypedDict):
    """Chunks in order, and the unfinished line of each node where it has changed."""

    seq: int
    chunks: list[Chunk]
    open: dict[str, list[Run]]


class LogHistory(LogBatch):
    """All remembered text, and how many earlier lines of each node are forgotten."""

    forgotten: dict[str, int]


@dataclass
class _NodeBatch:
    """What has arrived from one node since the last batch."""

    chunks: deque[Chunk] = field(default_factory=deque)
    lines: int = 0
    chars: int = 0
    dropped: int = 0

    def add(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self.lines += chunk["lines"]
        self.chars += _count_chars(chunk)

    def trim(self, max_lines: int, max_chars: int) -> None:
        while len(self.chunks) > 1 and (self.lines > max_lines or self.chars > max_chars):
            self._drop(self.chunks.popleft())
        last = self.chunks[0]
        if self.lines > max_lines or self.chars > max_chars:
            keep = max(1, min(max_lines, last["lines"] * max_chars // max(1, self.chars)))
            self._drop(last)
            last["runs"], last["lines"] = last_lines(last["runs"], keep), keep
            self.dropped -= keep
            self.lines, self.chars = keep, _count_chars(last)

    def _drop(self, chunk: Chunk) -> None:
        self.lines -= chunk["lines"]
        self.chars -= _count_chars(chunk)
        self.dropped += chunk["lines"]


class LogFeed:
    """Collects log events between two batches, and remembers the last lines for pages that load later.

    The two streams of a node are separate until their lines are finished, so that neither splits a line of the other.
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, str], LineBuffer] = {}
        self._streams: dict[str, dict[str, None]] = {}
        self._batch: dict[str, _NodeBatch] = {}
        self._order: list[Chunk] = []
        self._touched: dict[str, str] = {}
        self._open: dict[str, list[Run]] = {}
        self._dropped_events = 0
        self._skipped: dict[str, int] = {}
        self._seq = 0
        self._history: deque[Chunk] = deque()
        self._history_lines = 0
        self._forgotten: dict[str, int] = {}

    def take_in_all(self, events: Iterable[Event]) -> None:
        """Add events; of a flood only the newest text, so that rendering stays cheap whatever a node prints."""
        texts = [event for event in events if isinstance(event, LogText)]
        sizes: dict[str, int] = {}
        for event in texts:
            sizes[event.node] = sizes.get(event.node, 0) + len(event.text)
        excess = {node: size - MAX_READ // len(sizes) for node, size in sizes.items()}
        for event in texts:
            if excess[event.node] > 0:
                excess[event.node] -= self._skip(event, excess[event.node])
            else:
                self.take_in(event)

    def _skip(self, event: LogText, at_least: int) -> int:
        """Skip the beginning of a text, up to the end of a line; return how many characters."""
        end = event.text.find("\n", at_least) + 1 or len(event.text)
        self._skipped[event.node] = self._skipped.get(event.node, 0) + event.text.count("\n", 0, end)
        # The open line ended somewhere in the skipped part.
        self._buffers.pop((event.node, event.stream), None)
        self.take_in(dataclasses.replace(event, text=event.text[end:]))
        return end

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
            self._add({"node": event.node, "runs": runs, "lines": count_lines(runs), "note": ""})

    def add_dropped(self, count: int) -> None:
        """Add how many events the bus has dropped."""
        self._dropped_events += count

    def take_out(self) -> LogBatch | None:
        """Return the batch to send now, or None when nothing is new."""
        chunks = self._take_chunks()
        opened = self._take_open()
        if not chunks and not opened:
            return None
        self._remember(chunks)
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

    def _add(self, chunk: Chunk) -> None:
        batch = self._batch.setdefault(chunk["node"], _NodeBatch())
        batch.add(chunk)
        self._order.append(chunk)
        nodes = len(self._buffers)
        batch.trim(max(100, min(MAX_NODE_LINES, MAX_LINES // nodes)), max(10_000, MAX_CHARS // max(4, nodes)))

    def _take_chunks(self) -> list[Chunk]:
        kept = {id(chunk) for batch in self._batch.values() for chunk in batch.chunks}
        chunks = _join_neighbours(chunk for chunk in self._order if id(chunk) in kept)
        if len(chunks) > MAX_CHUNKS:
            chunks = _join_neighbours(chunk for batch in self._batch.values() for chunk in batch.chunks)
        for node, batch in self._batch.items():
            dropped = batch.dropped + self._skipped.pop(node, 0)
            if dropped:
                first = next(chunk for chunk in chunks if chunk["node"] == node)
                first["note"] = f"{dropped:,} lines dropped here"
        if self._dropped_events and chunks:
            lost = f"{self._dropped_events:,} pieces of text dropped here"
            chunks[0]["note"] = "; ".join(note for note in (lost, chunks[0]["note"]) if note)
            self._dropped_events = 0
        for chunk in chunks:
            chunk["runs"] = fold_repeats(chunk["runs"])
        self._batch.clear()
        self._order.clear()
        return chunks

    def _take_open(self) -> dict[str, list[Run]]:
        opened = {}
        for node, stream in self._touched.items():
            runs = self._open_line(node, stream)
            if runs != self._open.get(node, []):
                opened[node] = self._open[node] = runs
        self._touched.clear()
        return opened

    def _open_line(self, node: str, stream: str) -> list[Run]:
        own = self._buffers[node, stream].open_line
        others = (self._buffers[node, other].open_line for other in self._streams[node])
        return own or next((runs for runs in others if runs), [])

    def _remember(self, chunks: list[Chunk]) -> None:
        self._history.extend(chunks)
        self._history_lines += sum(chunk["lines"] for chunk in chunks)
        while len(self._history) > 1 and self._history_lines > HISTORY_LINES:
            gone = self._history.popleft()
            self._history_lines -= gone["lines"]
            self._forgotten[gone["node"]] = self._forgotten.get(gone["node"], 0) + gone["lines"]


def _join_neighbours(chunks: Iterable[Chunk]) -> list[Chunk]:
    joined: list[Chunk] = []
    parts: list[Run] = []
    for chunk in chunks:
        if joined and joined[-1]["node"] == chunk["node"]:
            parts += chunk["runs"]
            joined[-1]["lines"] += chunk["lines"]
            continue
        if joined:
            joined[-1]["runs"] = merge_runs(parts)
        joined.append({**chunk})
        parts = list(chunk["runs"])
    if joined:
        joined[-1]["runs"] = merge_runs(parts)
    return joined


def _count_chars(chunk: Chunk) -> int:
    return sum(len(text) for text, _ in chunk["runs"])
