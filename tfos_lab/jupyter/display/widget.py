"""The widget behind the dashboard: its traits, its front end's code, and its messages while a cell blocks."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

import anywidget
import traitlets

from tfos_lab.jupyter.display.static_bundle import style_sheet

# So many widgets of ended dashboards are kept before the oldest one is closed.
KEEP_RETIRED = 4

MODULES = (
    "dom.js",
    "format.js",
    "store.js",
    "page.js",
    "stop.js",
    "picture.js",
    "kernel_watch.js",
    "tensorboard.js",
    "header.js",
    "timeline.js",
    "table.js",
    "plot.js",
    "charts.js",
    "fold.js",
    "download.js",
    "logs.js",
    "dashboard.js",
)

_retired: deque[DashboardWidget] = deque()


@cache
def compose_module() -> str:
    """Return the modules of ``static/`` as the single ES module that anywidget needs."""
    folder = resources.files("tfos_lab.jupyter.display") / "static"
    parts = []
    for name in MODULES:
        text = (folder / name).read_text("utf-8")
        text = re.sub(r"^import\b[^;]*;\n", "", text, flags=re.MULTILINE)
        parts.append(re.sub(r"^export (?!default)", "", text, flags=re.MULTILINE))
    return "\n".join(parts)


class DashboardWidget(anywidget.AnyWidget):
    """What the front end draws; `Dashboard` owns it."""

    _esm = compose_module()
    _css = style_sheet("theme.css", "summary.css", "dashboard.css")

    view = traitlets.Dict().tag(sync=True)
    display_key = traitlets.Unicode().tag(sync=True)
    blocking = traitlets.Bool(default_value=True).tag(sync=True)
    kernel_id = traitlets.Unicode().tag(sync=True)

    fallback: dict[str, str]

    def receive(self, on_message: Callable[[dict[str, Any]], None]) -> None:
        """Pass the front end's messages on, also while a cell blocks.

        ipykernel 7.4 hands messages of a comm to the shell that last published on it, which is the busy one. Without
        this attribute they go where the front end sent them: to a subshell.
        """
        self.on_msg(lambda _widget, content, _buffers: on_message(content))
        if hasattr(self.comm, "_reply_subshell_for"):
            self.comm._reply_subshell_for = None  # noqa: SLF001 - there is no public way

    def close_with_layout(self) -> None:
        """Close the widget, and the layout that came with it."""
        layout = self.layout
        self.close()
        layout.close()

    def _repr_mimebundle_(self, **kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
        made = super()._repr_mimebundle_(**kwargs)
        if made is None:
            return None
        # A front end without widgets shows the current picture; at the end it gets the last one as all others do.
        return {**made[0], **self.fallback}, made[1]


def retire(widget: DashboardWidget) -> None:
    """Close the widget later.

    A page that was reloaded while a cell blocked asks for its widgets only when the cell has ended. It must still find
    this one then, to learn that it has ended.
    """
    _retired.append(widget)
    while len(_retired) > KEEP_RETIRED:
        _retired.popleft().close_with_layout()
