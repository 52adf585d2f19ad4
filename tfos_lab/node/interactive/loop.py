"""The function that an interactive cluster's nodes run: it waits for cells until the cluster is stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfos_lab.core import messages as m
from tfos_lab.core.payload import unpack
from tfos_lab.node.interactive.inbox import INBOX
from tfos_lab.node.interactive.namespace import InteractiveCell, Namespace
from tfos_lab.node.interactive.written import CopiedOutput, WrittenText
from tfos_lab.node.invoke import outcome_of

if TYPE_CHECKING:
    from tfos_lab.node.context.context import NodeContext

INTERRUPTED = "KeyboardInterrupt"


def run_cells(args: Any, ctx: NodeContext) -> None:
    """Run each cell that comes, in this process' main thread; an exception of a cell ends only that cell."""
    namespace, output = Namespace(args, ctx), CopiedOutput()
    send = ctx._send  # noqa: SLF001 - users see no such method
    output.install()
    while True:
        message = INBOX.take()
        try:
            outcome = _run(message, namespace, output, send)
        except KeyboardInterrupt:  # on its way into the cell, or out of it
            outcome = m.Outcome(kind="raised", error=INTERRUPTED)
        send(m.CellEnded(cell=message.cell, outcome=outcome, names=namespace.own))


def _run(
    message: m.RunCell, namespace: Namespace, output: CopiedOutput, send: Callable[[m.FromAgent], None]
) -> m.Outcome:
    written = WrittenText(lambda stream, text: send(m.CellWrote(cell=message.cell, stream=stream, text=text)))

    def run() -> Any:
        cell = unpack(message.payload)[1]
        assert isinstance(cell, InteractiveCell)
        return namespace.run(cell)

    run.__dict__["__tfos_implicit__"] = True  # if the last value cannot be sent, its text is
    with output.to(written), INBOX.running(message.cell):
        return outcome_of(run, None, None)
