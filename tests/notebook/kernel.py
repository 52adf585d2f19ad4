"""A real kernel and its front end: cells, Tab, Shift-Tab, ■, and lines that are typed at a debugger's prompt."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Self

from jupyter_client.manager import KernelManager

from tests.support.notebook_kernel import kernel_sockets
from tests.support.quick import QUICK_ENV
from tests.support.spark_home import spark_environment

REPOSITORY = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120.0


class Kernel:
    """Runs cells in a kernel.

    ``shown`` is what stands below the last one, and ``began`` what stood there at first, by its display's id;
    ``printed`` is what it printed, in order.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        python_path = os.pathsep.join([str(REPOSITORY), *QUICK_ENV.values()])
        # Lines of text without colours: tests read the screen.
        paths = {"IPYTHONDIR": str(folder), "JUPYTER_RUNTIME_DIR": str(folder / "runtime"), "PYTHONPATH": python_path}
        more = {"TFOS_LAB_RUNS": str(folder / "runs"), "NO_COLOR": "1", "TFOS_LAB_NONINTERACTIVE": "1"}
        self._manager = KernelManager(**kernel_sockets(folder))
        # Another session may be alive in this process, with its mode in the environment.
        self._manager.start_kernel(cwd=str(folder), env=spark_environment(folder / "local") | paths | more)
        self._client = self._manager.client()
        self._client.start_channels()
        try:
            self._client.wait_for_ready(timeout=TIMEOUT_S)
        except BaseException:
            self.__exit__()
            raise
        self.shown: dict[str, dict[str, str]] = {}
        self.began: dict[str, dict[str, str]] = {}
        self.printed = ""
        self._lines: list[str] = []

    def run(self, cell: str, *lines: str, interrupt_at: str = "") -> str:
        """Run a cell; return its text: what was shown, printed and returned, the debugger's prompts, and the error.

        Type a line at each prompt of the debugger. Press ■ once, as soon as the text ``interrupt_at`` is shown.
        """
        self.shown, self.began, self.printed, self._lines = {}, {}, "", list(lines)
        texts: list[str] = []

        def show(message: dict[str, Any]) -> None:
            nonlocal interrupt_at
            content = message["content"]
            text = content.get("text", "") + "\n".join(content.get("traceback", ()))
            display_id = content.get("transient", {}).get("display_id")
            if display_id:
                self.shown[display_id] = content["data"]
                self.began.setdefault(display_id, content["data"])
            elif "data" in content:
                text = content["data"].get("text/plain", "") + text
            texts.append(text)
            self.printed += text
            seen = content["data"].get("text/plain", "") if display_id else text
            if interrupt_at and interrupt_at in seen:
                interrupt_at = ""
                self._manager.interrupt_kernel()

        def type_line(message: dict[str, Any]) -> None:
            texts.append(message["content"]["prompt"])
            self._client.input(self._lines.pop(0) if self._lines else "quit")

        self._client.execute_interactive(
            cell, timeout=TIMEOUT_S, allow_stdin=True, stdin_hook=type_line, output_hook=show
        )
        assert self._lines == [], "the debugger did not ask for them"
        shown = [data["text/plain"] + "\n" for data in self.shown.values() if "text/plain" in data]
        return re.sub(r"\x1b\[[0-9;]*m", "", "".join([*shown, *texts]))

    def tab(self, text: str) -> list[str]:
        """Return what can stand at the cursor, which is at ``|``, or else at the end."""
        before, _, after = text.partition("|")
        reply = self._client.complete(before + after, len(before), reply=True, timeout=TIMEOUT_S)["content"]
        assert reply["cursor_end"] == len(before)
        return list(reply["matches"])

    def shift_tab(self, text: str) -> str:
        """Return the help at the cursor, or "" if there is none."""
        before, _, after = text.partition("|")
        reply = self._client.inspect(before + after, len(before), reply=True, timeout=TIMEOUT_S)["content"]
        return str(reply["data"].get("text/plain", ""))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
