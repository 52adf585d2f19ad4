"""What `TFEstimator` and `TFModel` hold beside their params, as `tfos_lab.ml.driver` sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_lab.ml.params import Stage

if TYPE_CHECKING:
    import keras
    import pandas as pd

    from tfos_lab.ml.keras_training import ModelFile


class TrainingStage(Stage):
    """Something that is trained, and how.

    Attributes
    ----------
    train_fn : callable or None
        ``train_fn(args, ctx)``, run on each node.
    model : keras.Model, ModelFile, callable or None
        What is trained where there is no ``train_fn``.
    is_one_of_several : bool
        Whether this is one of several fits, whose models must not take one another's place.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    train_fn: Callable[..., Any] | None = None
    model: keras.Model | ModelFile | Callable[..., Any] | None = None
    is_one_of_several = False


class ScoringStage(Stage):
    """A model, and how it scores.

    Attributes
    ----------
    history, metrics, results, run_dir
        What is known of the training; see `TFModel`.
    is_trusted : bool
        Whether the model was trained by this process, so that the code in it is the user's own.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    history: dict[str, list[float]] | None = None
    metrics: pd.DataFrame | None = None
    results: Mapping[str, Any] | None = None
    run_dir: Path | None = None
    is_trusted = False
