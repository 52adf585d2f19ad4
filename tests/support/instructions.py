"""What the instructions of a state machine send, node by node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tfos_lab.core import messages as m
from tfos_lab.driver.state.instructions import Instruction, SendTo


def sends(instructions: Iterable[Instruction]) -> Iterator[tuple[int, m.ToAgent]]:
    """Yield the rank and the message for each node that is sent one, in order."""
    for instruction in instructions:
        if isinstance(instruction, SendTo):
            for rank in instruction.each:
                yield rank, instruction.message
