"""Writes what nodes say into the run's folder, whole, and passes it on as text."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import BinaryIO

from tfos_lab.engine.events import LogText
from tfos_lab.messages import LogRecord


class LogKeeper:
    """One file per node; bytes are kept as they came, events carry them as text."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._files: dict[str, BinaryIO] = {}
        self._decoders: dict[tuple[str, str], codecs.IncrementalDecoder] = {}

    def path(self, node: str) -> Path:
        """Return the node's log file."""
        return self._run_dir / f"{node.replace(':', '-')}.log"

    def write(self, node: str, records: list[LogRecord]) -> list[LogText]:
        """Keep the records and return them as text, one event for each run of the same stream."""
        file = self._files.get(node)
        if file is None:
            file = self._files[node] = self.path(node).open("ab")
        events: list[LogText] = []
        for record in records:
            file.write(record.data)
            text = self._decoder(node, record.stream).decode(record.data)
            if events and events[-1].stream == record.stream:
                last = events.pop()
                events.append(LogText(time_s=last.time_s, node=node, stream=record.stream, text=last.text + text))
            elif text:
                events.append(LogText(time_s=record.time_s, node=node, stream=record.stream, text=text))
        file.flush()
        return events

    def _decoder(self, node: str, stream: str) -> codecs.IncrementalDecoder:
        key = (node, stream)
        if key not in self._decoders:
            self._decoders[key] = codecs.getincrementaldecoder("utf-8")(errors="replace")
        return self._decoders[key]

    def read(self, node: str, tail: int | None = None) -> str:
        """Return the node's log as text, or its last ``tail`` lines."""
        path = self.path(node)
        if not path.exists():
            return ""
        if tail is None:
            return path.read_text(errors="replace")
        return "\n".join(_last_lines(path, tail))

    def close(self) -> None:
        """Close the files; may be called twice."""
        for file in self._files.values():
            file.close()
        self._files.clear()


def _last_lines(path: Path, count: int, at_most_bytes: int = 1 << 20) -> list[str]:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - at_most_bytes))
        return file.read().decode(errors="replace").removesuffix("\n").split("\n")[-count:] if count > 0 else []
