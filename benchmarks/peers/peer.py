"""A process in the peers' environment that answers requests: one JSON line each way."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.support.daemon import die_with_parent

_INSIDE = Path(__file__).with_name("inside.py")
# The first request waits for Spark, and for an import of TensorFlow on each executor.
_TIMEOUT_S = 300
_END_TIMEOUT_S = 20


class PeerFailed(RuntimeError):
    """A peer could not do what was requested; the message gives the reason in one line."""


class Peer:
    """The process; it ends with the block.

    Parameters
    ----------
    python : path
        Interpreter of the peers' environment.
    master_url : str
        The Spark standalone cluster it uses.
    conf : mapping of str to str
        Its session's configuration.
    env : mapping of str to str
        All its environment variables.
    log : path
        File for its output, including Spark's messages.
    """

    def __init__(
        self, python: Path, master_url: str, conf: Mapping[str, str], *, env: Mapping[str, str], log: Path
    ) -> None:
        self._log = log
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [python, _INSIDE, master_url, json.dumps(dict(conf))],
                cwd=log.parent,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                start_new_session=True,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - one libc call
            )

    def ask(self, what: str, **arguments: object) -> dict[str, Any]:
        """Call a function of `inside` with its arguments, and return the answer.

        Raises
        ------
        PeerFailed
            If it raised, ended, or was silent for five minutes.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps({"ask": what, **arguments}) + "\n")
            stdin.flush()
        except OSError:
            raise PeerFailed(f"ended before {what}; its last line: {self._last_line()}") from None
        # Each answer is one line, so nothing is left in the buffer.
        if not select.select([stdout], [], [], _TIMEOUT_S)[0]:
            self._kill()
            raise PeerFailed(f"{what} took more than {_TIMEOUT_S} s; its last line: {self._last_line()}")
        line = stdout.readline()
        if not line:
            raise PeerFailed(f"ended during {what}; its last line: {self._last_line()}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerFailed(f"{what}: {answer['error']}")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        # It exits when its stdin ends.
        try:
            self._process.communicate(timeout=_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._kill()

    def _kill(self) -> None:
        """Kill it and its JVM."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "(nothing)"
