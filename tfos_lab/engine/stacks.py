"""Asks nodes for the stacks of their threads, and waits for the answers."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tfos_lab import messages as m
from tfos_lab.core.states import NodeState
from tfos_lab.engine.state.instructions import SendTo

if TYPE_CHECKING:
    from tfos_lab.engine.server import Server
    from tfos_lab.engine.state.events import NodeView

# A child answers at once, or its agent asks it with a signal after this share of the time.
_SIGNAL_AFTER = 0.4
_LONGEST_PATIENCE_S = 2.0


class StackAnswers:
    """The answers to requests for stacks; the server's thread brings them, others wait for them."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._answers: dict[int, dict[int, m.Stacks]] = {}

    def take(self, message: m.Stacks) -> None:
        """Take a node's answer; one that nobody waits for any more is dropped."""
        with self._changed:
            if message.request in self._answers:
                self._answers[message.request][message.rank] = message
                self._changed.notify_all()

    def ask(self, server: Server, ranks: Iterable[int], timeout_s: float) -> dict[int, m.Stacks]:
        """Ask nodes, and return what has been answered in time, by rank."""
        wanted = set(ranks)
        message = m.StacksWanted(next(self._numbers), min(_LONGEST_PATIENCE_S, timeout_s * _SIGNAL_AFTER))
        with self._changed:
            answers = self._answers[message.request] = {}
        try:
            server.request(lambda _now_s: [SendTo(rank, message) for rank in wanted])
            with self._changed:
                self._changed.wait_for(lambda: wanted <= set(answers) or server.over.is_set(), timeout_s)
                return dict(answers)
        finally:
            with self._changed:
                del self._answers[message.request]


def stacks_of(server: Server, views: tuple[NodeView, ...], node: str | None, timeout_s: float) -> dict[str, str]:
    """Return the stacks of a node, or of all, as text by name; or why there are none.

    Raises
    ------
    KeyError
        If there is no such node.
    """
    names = {view.node: rank for rank, view in enumerate(views)}
    if node is not None and node not in names:
        raise KeyError(f"no node {node!r} in this cluster; there are {', '.join(names)}")
    chosen = [names[node]] if node is not None else list(names.values())
    asked_s = time.monotonic()
    answers = server.stacks.ask(server, [rank for rank in chosen if _has_process(views[rank])], timeout_s)
    waited_s = time.monotonic() - asked_s
    return {views[rank].node: _text(views[rank], answers.get(rank), waited_s) for rank in chosen}


def _has_process(view: NodeView) -> bool:
    return not view.state.ended and view.state is not NodeState.WAITING


def _text(view: NodeView, answer: m.Stacks | None, waited_s: float) -> str:
    if answer is not None:
        return answer.text
    if not _has_process(view):
        return f"it has no process: its state is {view.state}"
    return f"its agent has not answered within {waited_s:.1f} s"
