"""Writes the nodes' logs into the run's folder, whole, and passes them on as text without noise.

`tfos_lab.engine.logs.noise` says what is left out of the text. A full disk costs log and nothing else: the nodes go on,
their text is shown, and the file says how many bytes it lacks.
"""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from tfos_lab.engine.logs.noise import NoiseFilter, without_noise
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.engine.state.events import LogText
from tfos_lab.messages import LogRecord


class LogWriter:
    """One file per node; bytes are kept as they came, events carry them as text.

    Parameters
    ----------
    run_dir : RunDir
        Where the files are.
    notify : callable
        Called once with a sentence if they cannot be written.
    """

    def __init__(self, run_dir: RunDir, notify: Callable[[str], None]) -> None:
        self._run_dir = run_dir
        self._notify = notify
        self._notified = False
        self._files: dict[str, io.FileIO] = {}
        self._missing: dict[str, int] = {}
        self._noise_filters: dict[tuple[str, str], NoiseFilter] = {}
        self._decoders: dict[tuple[str, str], codecs.IncrementalDecoder] = {}

    def path(self, node: str) -> Path:
        """Return the node's log file."""
        return self._run_dir.log(node)

    def write(self, node: str, records: list[LogRecord]) -> list[LogText]:
        """Append the records to the node's file, and return them as text, one event for each run of the same stream."""
        self._append(node, b"".join(record.data for record in records))
        events: list[LogText] = []
        for record in records:
            text = self._noise_filter(node, record.stream).take(self._decoder(node, record.stream).decode(record.data))
            if events and events[-1].stream == record.stream:
                last = events.pop()
                events.append(LogText(time_s=last.time_s, node=node, stream=record.stream, text=last.text + text))
            elif text:
                events.append(LogText(time_s=record.time_s, node=node, stream=record.stream, text=text))
        return events

    def _append(self, node: str, data: bytes) -> None:
        """Append to the node's file; where bytes are missing before, write how many."""
        missing = self._missing.pop(node, 0)
        gap = f"\n… {missing:,} bytes are missing here …\n".encode() if missing else b""
        try:
            written = self._file_of(node).write(gap + data) - len(gap)
            reason = "the disk is full"
        except OSError as error:
            written, reason = -len(gap), error.strerror or str(error)
        if written < len(data):
            self._missing[node] = len(data) - written if written >= 0 else missing + len(data)
            self._notify_once(node, reason)

    def _file_of(self, node: str) -> io.FileIO:
        if node not in self._files:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._files[node] = io.FileIO(os.open(self.path(node), flags, 0o600), "ab")
        return self._files[node]

    def _notify_once(self, node: str, reason: str) -> None:
        if not self._notified:
            self._notified = True
            self._notify(
                f"logs cannot be written to {self.path(node)} ({reason}): nodes go on, files say how much is missing"
            )

    def _decoder(self, node: str, stream: str) -> codecs.IncrementalDecoder:
        key = (node, stream)
        if key not in self._decoders:
            self._decoders[key] = codecs.getincrementaldecoder("utf-8")(errors="replace")
        return self._decoders[key]

    def _noise_filter(self, node: str, stream: str) -> NoiseFilter:
        return self._noise_filters.setdefault((node, stream), NoiseFilter())

    def read(self, node: str, tail: int | None = None) -> str:
        """Return the node's log as text, or its last ``tail`` lines without noise."""
        path = self.path(node)
        if not path.exists():
            return ""
        if tail is None:
            return path.read_text(errors="replace")
        return "\n".join(_last_lines(path, tail)) if tail > 0 else ""

    def read_all(self, nodes: Iterable[str], tail: int | None = None) -> str:
        """Return the logs of several nodes as text, with their names before each line."""
        return "\n".join(f"[{node}] {line}" for node in nodes for line in self.read(node, tail).splitlines())

    def close(self) -> None:
        """Close the files; may be called twice."""
        for file in self._files.values():
            file.close()
        self._files.clear()


def _last_lines(path: Path, count: int, at_most_bytes: int = 1 << 20) -> list[str]:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - at_most_bytes))
        return without_noise(file.read().decode(errors="replace")).removesuffix("\n").split("\n")[-count:]
