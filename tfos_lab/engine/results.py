"""What each node's function returned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tfos_lab.messages import Outcome
from tfos_lab.values import decode_value


class Results(Mapping[str, Any]):
    """Maps a node (``"worker:0"``) to what its function returned, which may be None.

    Values are decoded when they are first used.
    """

    def __init__(self, outcomes: Callable[[], dict[str, Outcome]]) -> None:
        self._outcomes = outcomes
        self._decoded: dict[str, Any] = {}

    def __getitem__(self, node: str) -> Any:
        if node not in self._decoded:
            outcome = self._outcomes().get(node)
            if outcome is None or outcome.kind != "returned":
                raise KeyError(node)
            self._decoded[node] = decode_value(outcome.value)
        return self._decoded[node]

    def __iter__(self) -> Iterator[str]:
        return (node for node, outcome in self._outcomes().items() if outcome.kind == "returned")

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        lines = []
        for node in self:
            text = repr(self[node])
            lines.append(f"{node}: {text if len(text) <= _WIDTH else text[:_WIDTH] + '…'}")
        return "\n".join(lines) if lines else "no results"


_WIDTH = 200
