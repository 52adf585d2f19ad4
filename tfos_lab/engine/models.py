"""The model that a run has saved: finds it in the run's output, and loads it into this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfos_lab.core.states import RunState
from tfos_lab.data.model_files import find_model, load_model
from tfos_lab.errors import NoModel


def find_run_model(output: Path, *, name: str, state: RunState) -> Path:
    """Return the model in a run's output folder; raises `NoModel` while the run goes on, and if there is none."""
    if not state.ended:
        raise NoModel(reason=f"the cluster '{name}' is {state}: its model is here when it has ended ({name}.wait())")
    path = find_model(output)
    if path is None:
        there = sorted(entry.name for entry in output.iterdir()) if output.is_dir() else []
        instead = f"; {output} holds {', '.join(there[:5])}{', …' if len(there) > 5 else ''}" if there else ""
        advice = "have its function call ctx.save_model(model) on the chief, or on all workers"
        raise NoModel(reason=f"the cluster '{name}' is {state} and has saved no model{instead}: {advice}")
    return path


def load_run_model(path: Path, *, custom_objects: Mapping[str, Any] | None, compile: bool, safe_mode: bool) -> Any:  # noqa: A002 - Keras' own name
    """Load a model into this process; raises `NoModel` if TensorFlow is missing here."""
    try:
        return load_model(path, custom_objects=custom_objects, compile=compile, safe_mode=safe_mode)
    except ImportError as error:
        instead = f"score with tfos_lab.predict(df, '{path}') on executors that have it, or install it here"
        raise NoModel(reason=f"this kernel cannot load {path}: {error}; {instead}") from None
