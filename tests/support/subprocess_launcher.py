"""A small launcher of its own, to prove what another one takes: a command for each node, as ``ssh`` would start it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import msgspec

from tfos_lab.core import launchers
from tfos_lab.engine.launchers.base import Launcher, LaunchPlan
from tfos_lab.engine.launchers.local import kernel_environ, local_spec
from tfos_lab.errors import LaunchFailed

TRAITS = launchers.LauncherTraits(
    name="subprocess",
    option="subprocess",
    factory="tests.support.subprocess_launcher:SubprocessLauncher",
    place="commands on this machine",
    checks_capacity=True,
)
_REPOSITORY = Path(__file__).parents[2]
# The module's own name says to `leftovers` that the process is one of ours.
_COMMAND = [sys.executable, "-m", "tests.support.agent_on_stdin", "tfos_lab.node.agent"]


@contextmanager
def subprocess_launcher() -> Iterator[None]:
    """Register the launcher, so that ``local="subprocess"`` asks for it."""
    with mock.patch.dict(launchers.LAUNCHERS, {TRAITS.name: TRAITS}):
        yield


class SubprocessLauncher(Launcher):
    """Runs a command for each rank, and writes what the agent needs to know to its standard input."""

    def __init__(self, plan: LaunchPlan) -> None:
        super().__init__(plan)
        self._commands: list[subprocess.Popen[bytes]] = []
        self._waiting: list[threading.Thread] = []
        self._cancelled = False

    def launch(self) -> None:
        """Start the commands."""
        environ = kernel_environ()
        for spec in self._plan.node_specs:
            if self._cancelled:
                return
            data = msgspec.msgpack.encode(local_spec(self._plan, spec, None, environ))
            try:
                command = subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, cwd=_REPOSITORY, process_group=0)
            except OSError as error:
                raise LaunchFailed(reason=f"no command could be started for {spec.node}: {error}") from error
            self._commands.append(command)
            assert command.stdin is not None
            with command.stdin as stdin:
                stdin.write(data)
            thread = threading.Thread(target=self._wait, args=(spec.rank, command), name=f"tfos-command-{spec.rank}")
            thread.start()
            self._waiting.append(thread)

    def _wait(self, rank: int, command: subprocess.Popen[bytes]) -> None:
        code = command.wait()
        self._plan.lose(rank, f"its agent ended with code {code}")

    def cancel(self) -> None:
        """Start no more commands."""
        self._cancelled = True

    def close(self) -> None:
        """End the agents that are still there."""
        for command in self._commands:
            command.terminate()
        for thread in self._waiting:
            thread.join(60)
