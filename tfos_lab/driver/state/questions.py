"""What nodes are asked (for their stacks, for a profile), and what follows from the answers. Pure.

Whoever asks says until when, and what then: that is called once, when all have answered or the time is up.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.driver.state.instructions import Instruction, SendTo

Wanted = m.StacksWanted | m.ProfileWanted
Answer = m.Stacks | m.Profiled
# Takes the answers by rank, and the time.
Then = Callable[[dict[int, Any], float], list[Instruction]]


@dataclass
class _Question:
    ranks: AbstractSet[int]
    until_s: float
    then: Then
    answers: dict[int, Answer] = field(default_factory=dict)


class Questions:
    """The questions that are open among the nodes of one start."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._open: dict[tuple[bool, int], _Question] = {}

    def ask(self, ranks: AbstractSet[int], message: Wanted, until_s: float, then: Then) -> list[Instruction]:
        """Ask nodes, under a number of its own."""
        message = msgspec.structs.replace(message, request=next(self._numbers))
        self._open[_key(message)] = _Question(ranks, until_s, then)
        return [SendTo(rank, message) for rank in sorted(ranks)]

    def handle(self, message: Answer, now_s: float) -> list[Instruction]:
        """Take a node's answer; one that nobody waits for (any more) is dropped."""
        question = self._open.get(_key(message))
        if question is None or message.rank not in question.ranks:
            return []
        question.answers[message.rank] = message
        return self._conclude(_key(message), now_s) if question.ranks <= question.answers.keys() else []

    def tick(self, now_s: float) -> list[Instruction]:
        """Give up waiting for answers whose time is up; called often."""
        late = [key for key, question in self._open.items() if now_s > question.until_s]
        return [instruction for key in late for instruction in self._conclude(key, now_s)]

    def _conclude(self, key: tuple[bool, int], now_s: float) -> list[Instruction]:
        question = self._open.pop(key)
        return question.then(question.answers, now_s)


def _key(message: Wanted | Answer) -> tuple[bool, int]:
    return isinstance(message, m.Stacks | m.StacksWanted), message.request
