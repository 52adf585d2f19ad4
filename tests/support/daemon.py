"""A server process that a test starts: its log, its first signs of life, and its end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from tests.support.tied import tied

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Daemon:
    """One process with a group of its own, whose output is kept in the file ``log`` and can be waited on.

    ``env`` is its whole environment; None means ours.
    """

    def __init__(self, name: str, command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = log
        self._text = ""
        self._ended = False
        self._stopped = False
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            tied(command),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name=f"daemon-{name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its process id, which is its process group's too."""
        return self._process.pid

    def wait_for(self, pattern: str, *, timeout_s: float) -> re.Match[str]:
        """Return the first match of a regular expression in its output, as soon as it is there.

        If it ended, or the time ran out, without such a line, its last lines are in the RuntimeError.
        """
        regex = re.compile(pattern)
        with self._changed:
            self._changed.wait_for(lambda: self._ended or regex.search(self._text), timeout_s)
            match, ended, text = regex.search(self._text), self._ended, self._text
        if match:
            return match
        what = "ended" if ended else f"was silent for {timeout_s:g} s"
        tail = "\n".join(text.splitlines()[-30:])
        raise RuntimeError(f"{self.name} {what} without printing {pattern!r}; its last lines:\n{tail}")

    def wait_for_url(self, pattern: str, *, timeout_s: float) -> str:
        """Return the URL that a pattern's first group is, once its port can be reached: servers tell it before that."""
        deadline = time.monotonic() + timeout_s
        url = self.wait_for(pattern, timeout_s=timeout_s)[1]
        parts = urlsplit(url)
        while True:
            try:
                socket.create_connection((parts.hostname, parts.port), timeout=1).close()
            except OSError as error:
                if self._ended or time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name} told {url}, but cannot be reached there") from error
                time.sleep(0.02)
            else:
                return url

    def stop(self, *, grace_s: float = 10) -> None:
        """End it and its process group: SIGTERM, then SIGKILL after ``grace_s`` seconds. May be called twice."""
        if self._stopped:
            return
        self._stopped = True
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_s)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join(grace_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _signal(self, number: signal.Signals) -> None:
        # The group outlives its leader while any child of it is left.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self.log.open("wb") as log, self._process.stdout as output:
            for line in output:
                log.write(line)
                log.flush()
                with self._changed:
                    self._text += line.decode(errors="replace")
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def die_with_parent() -> None:
    """Ask Linux for SIGTERM when the parent's thread has gone; for ``preexec_fn`` without gRPC (benchmarks)."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
