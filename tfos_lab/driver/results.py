"""What each node's function returned, and the model that the run has saved."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tfos_lab.core.markup import PlainTable
from tfos_lab.core.messages import Outcome
from tfos_lab.core.states import RunState
from tfos_lab.core.values import decode_value, load_stored
from tfos_lab.data.model_files import find_model, load_model
from tfos_lab.errors import NoModel
from tfos_lab.texts import suggest


class Results(Mapping[str, Any]):
    """Maps a node (``"worker:0"``) to what its function returned, which may be None.

    Values are decoded when they are first used. Large ones are files until then, and are mapped: their arrays take
    memory only where they are looked at.
    """

    def __init__(self, outcomes: Callable[[], dict[str, Outcome]], file_of: Callable[[str], Path] = Path) -> None:
        self._outcomes = outcomes
        self._file_of = file_of
        self._lock = threading.Lock()
        self._decoded: dict[str, Any] = {}

    def __getitem__(self, node: str) -> Any:
        with self._lock:
            if node not in self._decoded:
                outcome = self._outcomes().get(node)
                if outcome is None or outcome.kind != "returned":
                    raise KeyError(f"no result of {node!r}; {suggest(str(node), self)}")
                if outcome.stored_bytes:
                    self._decoded[node] = load_stored(self._file_of(node), outcome.stored_bytes)
                else:
                    self._decoded[node] = decode_value(outcome.value)
            return self._decoded[node]

    def __iter__(self) -> Iterator[str]:
        return (node for node, outcome in self._outcomes().items() if outcome.kind == "returned")

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return "\n".join(returned_text(node, text) for node, text in self._shown()) or _NONE

    def _repr_html_(self) -> str:
        return PlainTable(("node", "result"), self._shown(), empty=_NONE).html

    def _shown(self) -> list[tuple[str, str]]:
        """Return the nodes and what they have returned, as text: once if it is the same, and nothing if it is None."""
        texts = {node: repr(self[node]) for node in self}
        if all(self[node] is None for node in self):
            return []
        if len(texts) >= LEAST_TOGETHER and len(texts) == len(self._outcomes()) and len(set(texts.values())) == 1:
            texts = {f"all {len(texts)} nodes": next(iter(texts.values()))}
        return [(node, _shortened(text)) for node, text in texts.items()]


_NONE = "no results"
_WIDTH = 200
# Of tables and arrays.
_LINES = 24


def returned_text(node: str, text: str) -> str:
    """Return what a node has returned as a line, or as lines below its name."""
    return f"{node}:\n{text}" if "\n" in text else f"{node}: {text}"


def _shortened(text: str) -> str:
    """Return a text of a line, or the first lines of a table, that fits beside those of other nodes."""
    lines = text.split("\n")
    shown = [line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…" for line in lines[:_LINES]]
    return "\n".join([*shown, *["…"][: len(lines) > _LINES]])


#: So many nodes that agree have one row together, here and in the card.
LEAST_TOGETHER = 3


def find_run_model(output: Path, *, name: str, state: RunState) -> Path:
    """Return the model in a run's output folder; raises `NoModel` while the run goes on, and if there is none."""
    if not state.ended:
        raise NoModel(reason=f"the cluster '{name}' is {state}: its model is here when it has ended ({name}.wait())")
    path = find_model(output)
    if path is None:
        there = sorted(entry.name for entry in output.iterdir()) if output.is_dir() else []
        instead = f"; {output} holds {', '.join(there[:5])}{', …' if len(there) > 5 else ''}" if there else ""
        advice = "have its function call ctx.save_model(model) on the chief, or on all workers"
        raise NoModel(reason=f"the cluster '{name}' ({state}) has saved no model{instead}: {advice}")
    return path


def load_run_model(path: Path, *, custom_objects: Mapping[str, Any] | None, compile: bool, safe_mode: bool) -> Any:  # noqa: A002 - Keras' own name
    """Load a model into this process; raises `NoModel` if TensorFlow is missing here."""
    try:
        return load_model(path, custom_objects=custom_objects, compile=compile, safe_mode=safe_mode)
    except ImportError as error:
        instead = f"score with tfos_lab.predict(df, '{path}') on executors that have it, or install it here"
        raise NoModel(reason=f"this kernel cannot load {path}: {error}; {instead}") from None
