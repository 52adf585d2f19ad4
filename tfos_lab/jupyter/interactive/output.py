"""What a cell on an interactive cluster has written, openly below it, and only once where nodes agree."""

from __future__ import annotations

import html
from typing import Any, Self

from IPython.display import display

from tfos_lab.engine.cells import RunningCell
from tfos_lab.engine.interactive.results import grouped, names_of
from tfos_lab.jupyter.display.kernel import current_kernel
from tfos_lab.jupyter.display.log_text import render_log

_NAMES_STYLE = "color:var(--jp-ui-font-color2,#666);font-size:85%"
_TEXT_STYLE = "margin:0 0 .5em;white-space:pre-wrap"


class CellOutput:
    """Shows a cell's text while it runs, in a kernel; elsewhere it is printed at the end.

    Parameters
    ----------
    cell : RunningCell
        The cell.
    """

    def __init__(self, cell: RunningCell) -> None:
        self._cell = cell
        self._shown = ""
        self._handle: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if current_kernel() is not None:
            self.update()
        elif text := self.text():
            print(text)  # noqa: T201

    def update(self) -> None:
        """Show what has been written by now; called by the thread that runs the cell."""
        text = self.text()
        if current_kernel() is None or text == self._shown:
            return
        self._shown = text
        if self._handle is None:
            self._handle = display(self, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(self)

    def groups(self) -> list[tuple[str, str]]:
        """Return what has been written, each text with the nodes that have written it; "" for a single node."""
        nodes = list(self._cell.nodes.values())
        texts = {node: "".join(text for text, _ in render_log(self._cell.text_of(node))) for node in nodes}
        found = grouped({node: text.rstrip("\n") for node, text in texts.items() if text.strip()})
        return [("" if len(nodes) == 1 else names_of(group, len(nodes)), text) for text, group in found.items()]

    def text(self) -> str:
        """Return it as text."""
        return "\n".join(f"[{names}]\n{text}" if names else text for names, text in self.groups())

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        parts = [
            (f'<div style="{_NAMES_STYLE}">{html.escape(names)}</div>' if names else "")
            + f'<pre style="{_TEXT_STYLE}">{html.escape(text)}</pre>'
            for names, text in self.groups()
        ]
        return {"text/plain": self.text(), "text/html": "".join(parts)}
