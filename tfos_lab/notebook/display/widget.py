"""The widget behind the dashboard: its traits, its front end's code, and its messages while a cell blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from tfos_lab.notebook.display.assets import read_asset, read_style_sheet
from tfos_lab.notebook.display.messages import PageMessage

# So many widgets of ended dashboards are kept before the oldest one is closed.
KEEP_RETIRED = 4

_retired: deque[DashboardWidget] = deque()


class DashboardWidget(anywidget.AnyWidget):
    """What the front end draws; `Dashboard` owns it."""

    _esm = read_asset("dashboard.js")
    _css = read_style_sheet("dashboard.css")

    head = traitlets.Unicode().tag(sync=True)
    course = traitlets.Unicode().tag(sync=True)
    nodes = traitlets.Unicode().tag(sync=True)
    charts = traitlets.Unicode().tag(sync=True)
    shown = traitlets.Unicode().tag(sync=True)
    stacks = traitlets.Unicode().tag(sync=True)
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

    def send_message(self, message: PageMessage) -> None:
        """Send one of the messages that the page knows."""
        self.send(message)

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
