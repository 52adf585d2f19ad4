"""Independent runs within the record of all of them: their table, and their logs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from tfos_lab.engine.state.events import NodeView, RunFacts

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = ("run", "best", "state", "tries", "seconds", "error", "folder")


def log_of_part(part: RunFacts) -> PurePosixPath | None:
    """Return the log file of a run's last try, as a path below the folder of all runs.

    None where there was none, or where the record leads elsewhere.
    """
    path = PurePosixPath(part.log)
    is_below = part.log and not path.is_absolute() and ".." not in path.parts
    return path if is_below else None


def parts_table(nodes: Sequence[NodeView], folder: str) -> pd.DataFrame:
    """Return a table with a row for each independent run, in the order of the record; see `Run.table`."""
    import pandas as pd

    found = [(node, node.run) for node in nodes if node.run is not None]
    parts = [part for _, part in found]
    logs = [log_of_part(part) for part in parts]
    columns: dict[str, Any] = {
        "run": pd.Series([node.task_index for node, _ in found], dtype="int64"),
        **_arguments(parts),
        "best": pd.Series([part.best for part in parts], dtype="float64"),
        "state": pd.Series([node.state for node, _ in found], dtype="string"),
        "tries": pd.Series([part.tries for part in parts], dtype="int64"),
        "seconds": pd.Series([part.seconds for part in parts], dtype="float64"),
        "error": pd.Series([node.detail for node, _ in found], dtype="string"),
        "folder": pd.Series([f"{folder}/{log.parent}" if log else None for log in logs], dtype="string"),
    }
    return pd.DataFrame(columns)


def _arguments(parts: Iterable[RunFacts]) -> dict[str, list[Any]]:
    """Return a column for each parameter, or one for the arguments in short where runs have no parameters."""
    parts = list(parts)
    names = dict.fromkeys(name for part in parts for name in part.params)
    if not names:
        return {"args": [part.args for part in parts]}
    return {f"{name}_" if name in _COLUMNS else name: [part.params.get(name) for part in parts] for name in names}
