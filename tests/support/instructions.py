"""What the instructions of a state machine send, node by node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tfos_lab.core import messages as m
from tfos_lab.driver.state.instructions import Instruction, SendTo, SendToAll


def sends(instructions: Iterable[Instruction]) -> Iterator[tuple[int, m.ToAgent]]:
    """Yield the rank and the message for each node that is sent one, in order."""
    for instruction in instructions:
        if isinstance(instruction, SendTo):
            yield instruction.rank, instruction.message
        elif isinstance(instruction, SendToAll):
            for rank in instruction.ranks:
                yield rank, instruction.message
