"""What a cell of an interactive cluster has brought: values, output, or the error of the nodes on which it failed."""

from __future__ import annotations

from collections.abc import Mapping

from tfos_lab.engine.cells import RunningCell
from tfos_lab.engine.results import Results
from tfos_lab.errors import CellFailed
from tfos_lab.messages import Outcome


class CellResults(Results):
    """Maps a node to the value of a cell there, which may be None.

    Attributes
    ----------
    output : dict of str to str
        What the cell has written, by node.
    """

    def __init__(self, cell: RunningCell) -> None:
        super().__init__(lambda: {node: cell.outcomes[node] for node in cell.nodes.values()})
        self.output = {node: cell.text_of(node) for node in cell.nodes.values()}

    def __repr__(self) -> str:
        groups = grouped({node: repr(value) for node, value in self.items() if value is not None})
        return "\n".join(f"{names_of(nodes, len(self))}: {text}" for text, nodes in groups.items())


def grouped(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the nodes by what they agree on, in order."""
    groups: dict[str, list[str]] = {}
    for node, text in texts.items():
        groups.setdefault(text, []).append(node)
    return groups


def names_of(nodes: list[str], count: int) -> str:
    """Return the nodes in words; ``count`` is how many there are in all."""
    return f"all {count} nodes" if len(nodes) == count > 1 else ", ".join(nodes)


def failure_of_cell(cell: RunningCell) -> CellFailed | None:
    """Return the error of the first node on which a cell failed, or None if it failed on none."""
    failed = {node: cell.outcomes[node] for node in cell.nodes.values() if cell.outcomes[node].kind != "returned"}
    if not failed:
        return None
    first, outcome = next(iter(failed.items()))
    also = [node for node, other in failed.items() if node != first and _same(other, outcome)]
    others = [f"{node}: {_sentence(other)}" for node, other in failed.items() if node != first and node not in also]
    last = outcome.traceback or _sentence(outcome)
    return CellFailed(
        node=first,
        kind=_kind(outcome),
        message=outcome.message,
        traceback="\n".join([*others, "", last] if others else [last]),
        also=also,
    )


def _same(one: Outcome, other: Outcome) -> bool:
    return (_kind(one), one.message) == (_kind(other), other.message)


def _kind(outcome: Outcome) -> str:
    return outcome.error or "SystemExit"


def _sentence(outcome: Outcome) -> str:
    text = outcome.message or (str(outcome.exit_code) if outcome.exit_code else "")
    return f"{_kind(outcome)}: {text}" if text else _kind(outcome)
