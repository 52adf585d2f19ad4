"""A node of an interactive cluster: it waits for cells, and runs them one after the other in one namespace.

The session's thread puts cells into the inbox, the main thread takes and runs them. What a cell writes travels to the
notebook beside the log, which has all of it.
"""

from __future__ import annotations

import builtins
import contextlib
import itertools
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TextIO, cast

from tfos_lab.core import messages as m
from tfos_lab.core.payload import unpack
from tfos_lab.node.invoke import call_map_fun, outcome_of

if TYPE_CHECKING:
    from tfos_lab.node.context.context import NodeContext

_GIVEN = ("args", "ctx")
# Text waits this long for more; a cell that prints much sends few messages.
_GATHER_S = 0.1
# The rest of what a cell writes is in the log only.
LIMIT_CHARS = 200_000


def run_cells(args: Any, ctx: NodeContext) -> None:
    """Run each cell that comes, in this process' main thread; an exception of a cell ends only that cell."""
    namespace, output = Namespace(args, ctx), CellOutput()
    send = ctx._send  # noqa: SLF001 - users see no such method
    while True:
        message = INBOX.waiting.get()
        try:
            outcome = _run(message, namespace, output, send)
        except KeyboardInterrupt:  # on its way into the cell, or out of it
            outcome = m.Outcome(kind="raised", error=KeyboardInterrupt.__name__)
        send(m.CellEnded(cell=message.cell, outcome=outcome, names=namespace.own))


def _run(
    message: m.RunCell, namespace: Namespace, output: CellOutput, send: Callable[[m.FromAgent], None]
) -> m.Outcome:
    def run() -> Any:
        cell = unpack(message.payload)[1]
        assert isinstance(cell, InteractiveCell)
        return namespace.run(cell)

    run.__dict__["__tfos_implicit__"] = True  # if the last value cannot be sent, its text is
    written = output.sent(lambda stream, text: send(m.CellWrote(cell=message.cell, stream=stream, text=text)))
    with written, INBOX.running(message.cell):
        return outcome_of(run, None, None)


class CellInbox:
    """The cells that wait for this process, and the interrupt of the one that runs."""

    def __init__(self) -> None:
        self.waiting: SimpleQueue[m.RunCell] = SimpleQueue()
        self._interrupted: set[int] = set()
        self._running: int | None = None

    def handle(self, message: m.RunCell | m.InterruptCell) -> None:
        """Apply the driver's message; called by the thread that receives."""
        if isinstance(message, m.RunCell):
            self.waiting.put(message)
            return
        self._interrupted.add(message.cell)
        if self._running == message.cell:
            # A signal, as from a keyboard: it also ends what waits in a system call, such as time.sleep.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    @contextlib.contextmanager
    def running(self, cell: int) -> Iterator[None]:
        """Have an interrupt of this cell raise KeyboardInterrupt in the block, which the main thread runs.

        Interrupts are ignored from then on, until the next cell: one may have been sent just before the cell ended.
        """
        signal.signal(signal.SIGINT, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        try:
            self._running = cell
            if cell in self._interrupted:
                raise KeyboardInterrupt
            yield
        finally:
            try:
                self._running = None
            finally:  # also where it has come just before that
                self._running = None

    def _on_signal(self, _number: int, _frame: types.FrameType | None) -> None:
        if self._running is not None:
            raise KeyboardInterrupt


INBOX = CellInbox()


@dataclass(frozen=True, kw_only=True)
class InteractiveCell:
    """A cell as it travels."""

    # Its statements, and its last expression, whose value is the cell's.
    body: types.CodeType | None = None
    last: types.CodeType | None = None
    # To be called with ``(args, ctx)`` instead.
    function: Callable[..., Any] | None = None
    # The notebook's values of names that the cell uses.
    captured: Mapping[str, Any] = field(default_factory=dict)


class Namespace:
    """One node's names: those that cells have made stay; any other is the notebook's, as when the cell was run."""

    def __init__(self, args: Any, ctx: NodeContext) -> None:
        self._args, self._ctx = args, ctx
        # Classes that a cell defines belong to this module, and pickle looks for them there.
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        self._names = vars(module)
        self._names.update(args=args, ctx=ctx, __builtins__=builtins)
        self._captured: dict[str, Any] = {}

    def run(self, cell: InteractiveCell) -> Any:
        """Run a cell; return the value of its last expression, or what its function returns."""
        if cell.function is not None:
            return call_map_fun(cell.function, self._args, self._ctx)
        own = set(self.own)
        for name, value in cell.captured.items():
            if name not in own:
                self._names[name] = self._captured[name] = value
        if cell.body is not None:
            exec(cell.body, self._names)  # noqa: S102 - it is the request
        return eval(cell.last, self._names) if cell.last is not None else None  # noqa: S307 - as above

    @property
    def own(self) -> list[str]:
        """The names that cells have made on this node, sorted."""
        return sorted(
            name
            for name, value in self._names.items()
            if not name.startswith("__")
            and name not in _GIVEN
            and not (name in self._captured and self._captured[name] is value)
        )


class CellOutput:
    """Copies what this process writes to stdout and stderr while a cell runs, in pieces.

    The streams are put in place once: a logger that one cell has set up shows its lines below later ones, too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces: list[tuple[str, str]] = []
        self._left = 0
        sys.stdout = cast("TextIO", _Copied(sys.stdout, "stdout", self._add))
        sys.stderr = cast("TextIO", _Copied(sys.stderr, "stderr", self._add))

    @contextlib.contextmanager
    def sent(self, send: Callable[[str, str], None]) -> Iterator[None]:
        """Send what is written in the block, with the name of the stream; at its end, all has been sent."""
        ended = threading.Event()

        def send_often() -> None:
            while not ended.wait(_GATHER_S):
                self._send_pieces(send)

        sender = threading.Thread(target=send_often, name="tfos-cell-output", daemon=True)
        sender.start()
        self._left = LIMIT_CHARS
        try:
            yield
        finally:
            self._left = 0
            ended.set()
            sender.join()
            self._send_pieces(send)

    def _add(self, stream: str, text: str) -> None:
        """Add text; what exceeds the limit is left out, with a note."""
        with self._lock:
            if self._left > 0 and text:
                rest = "" if len(text) <= self._left else "\n… the rest is in the log\n"
                self._pieces.append((stream, text[: self._left] + rest))
                self._left -= len(text)

    def _send_pieces(self, send: Callable[[str, str], None]) -> None:
        with self._lock:
            pieces, self._pieces = self._pieces, []
        for stream, run in itertools.groupby(pieces, lambda piece: piece[0]):
            send(stream, "".join(text for _, text in run))


class _Copied:
    """A stream whose text also goes elsewhere; in all else it is the stream itself."""

    def __init__(self, stream: TextIO, name: str, copy: Callable[[str, str], None]) -> None:
        self._stream, self._name, self._copy = stream, name, copy

    def write(self, text: str) -> int:
        self._copy(self._name, text)
        return self._stream.write(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
