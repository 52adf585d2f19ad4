"""``local=inline`` in a real kernel with somebody at the keyboard: ``breakpoint()`` and ``%debug`` stop."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

from tests.support.quick import QUICK_ENV

REPOSITORY = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120.0


class Keyboard:
    """Runs cells, and types the next line at each of the debugger's prompts.

    Prompts come on a channel of their own, so that one may be seen before what was printed ahead of it: ``text`` has
    both, ``printed`` only the latter, which is in order.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._lines: list[str] = []
        self.text = self.printed = ""

    def run(self, cell: str, *lines: str) -> str:
        """Run a cell and return what is on the screen then, errors included."""
        self.text, self.printed, self._lines = "", "", list(lines)
        self._client.execute_interactive(
            cell, allow_stdin=True, timeout=TIMEOUT_S, stdin_hook=self._type, output_hook=self._show
        )
        assert self._lines == [], "the debugger did not ask for them"
        return self.text

    def _type(self, message: dict) -> None:
        self.text += message["content"]["prompt"]
        self._client.input(self._lines.pop(0) if self._lines else "quit")

    def _show(self, message: dict) -> None:
        content = message["content"]
        shown = content.get("text", "") + "\n".join(content.get("traceback", ()))
        self.text += shown
        self.printed += shown


@pytest.fixture(scope="module")
def keyboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyboard]:
    folder = tmp_path_factory.mktemp("kernel")
    python_path = os.pathsep.join([str(REPOSITORY), *QUICK_ENV.values()])
    # Lines of text without colours: the test reads the screen.
    paths = {"IPYTHONDIR": str(folder), "JUPYTER_RUNTIME_DIR": str(folder / "runtime"), "NO_COLOR": "1"}
    env = {**os.environ, **paths, "PYTHONPATH": python_path, "TFOS_LAB_NONINTERACTIVE": "1"}
    manager, client = start_new_kernel(cwd=str(folder), env=env)
    try:
        keyboard = Keyboard(client)
        assert keyboard.run("%colors nocolor\n%load_ext tfos_lab") == ""
        yield keyboard
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_breakpoint_stops_in_the_cell_with_its_own_lines_and_names(keyboard: Keyboard) -> None:
    screen = keyboard.run(
        "%%tfos local=inline args=20\nanswer = args + 1\nbreakpoint()\nanswer *= 2\nanswer",
        "p answer",
        "p ctx.node",
        "next",
        "p ('after', answer)",
        "continue",
    )
    assert screen.count("ipdb> ") == 5
    printed = keyboard.printed.splitlines()
    said = ["----> 4 answer *= 2", "21", "'chief:0'", "----> 5 answer", "('after', 42)"]
    assert [line for line in printed if line in said] == said
    assert "done" in printed[-1]
    assert "42" in keyboard.run("print(dict(cluster.results))")


def test_debug_goes_back_to_the_failing_line(keyboard: Keyboard) -> None:
    failed = keyboard.run("%%tfos local=inline\nwanted = [1, 2]\nwanted[5]")
    assert "IndexError" in failed
    screen = keyboard.run("%debug", "p wanted", "quit")
    assert "[1, 2]" in screen
    assert "wanted[5]" in screen
    assert "failed" in keyboard.run("print(cluster.state)")


def test_a_cell_that_is_left_in_the_debugger_ends_its_cluster(keyboard: Keyboard) -> None:
    keyboard.run("%%tfos local=inline name=left\nbreakpoint()\n1", "quit")
    assert "left.ended True" in keyboard.run("print('left.ended', left.ended)")
