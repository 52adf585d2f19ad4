"""Asks nodes for the stacks of their threads, and waits for the answers."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from tfos_lab.core import messages as m
from tfos_lab.core.states import NodeState
from tfos_lab.driver.state.events import NodeView, rank_of
from tfos_lab.driver.state.instructions import Instruction, SendTo

# A child answers at once, or its agent asks it with a signal after this share of the time.
_SIGNAL_AFTER = 0.4
_LONGEST_PATIENCE_S = 2.0


class StackAnswers:
    """Asks the nodes of one start; the head's thread brings the answers, others wait for them.

    Parameters
    ----------
    request : callable
        Has the head's thread carry out instructions.
    over : threading.Event
        Set when no more answers will come.
    """

    def __init__(self, request: Callable[[Callable[[float], list[Instruction]]], None], over: threading.Event) -> None:
        self._request = request
        self._over = over
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._waited_for: dict[int, dict[int, m.Stacks]] = {}

    def take(self, message: m.Stacks) -> None:
        """Take a node's answer; one that nobody waits for any more is dropped."""
        with self._changed:
            if message.request in self._waited_for:
                self._waited_for[message.request][message.rank] = message
                self._changed.notify_all()

    def of(self, views: Sequence[NodeView], node: str | None, timeout_s: float) -> dict[str, str]:
        """Return the stacks of a node, or of all, as text by name; or why there are none.

        Raises
        ------
        KeyError
            If there is no such node.
        """
        chosen = [rank_of(views, node)] if node is not None else list(range(len(views)))
        asked_s = time.monotonic()
        answers = self.answers({rank for rank in chosen if _has_process(views[rank])}, timeout_s)
        waited_s = time.monotonic() - asked_s
        return {views[rank].name: _text(views[rank], answers.get(rank), waited_s) for rank in chosen}

    def why_deaf(self, rank: int, timeout_s: float = 3.0) -> str:
        """Return why a node's process does not answer, in a line; "" if it does."""
        answer = self.answers({rank}, timeout_s).get(rank)
        return answer.text.partition("\n")[0] if answer is not None and answer.condition.is_deaf else ""

    def answers(self, ranks: AbstractSet[int], timeout_s: float) -> dict[int, m.Stacks]:
        """Ask nodes, and return what those say that answer in time, by rank."""
        message = m.StacksWanted(next(self._numbers), min(_LONGEST_PATIENCE_S, timeout_s * _SIGNAL_AFTER))
        with self._changed:
            answers = self._waited_for[message.request] = {}
        try:
            self._request(lambda _now_s: [SendTo(rank, message) for rank in ranks])
            with self._changed:
                self._changed.wait_for(lambda: ranks <= set(answers) or self._over.is_set(), timeout_s)
                return dict(answers)
        finally:
            with self._changed:
                del self._waited_for[message.request]


def _has_process(view: NodeView) -> bool:
    return not view.state.ended and view.state is not NodeState.WAITING


def _text(view: NodeView, answer: m.Stacks | None, waited_s: float) -> str:
    if answer is not None:
        return answer.text
    if not _has_process(view):
        return f"it has no process: its state is {view.state}"
    return f"its agent has not answered within {waited_s:.1f} s"
