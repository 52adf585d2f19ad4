"""What `TFTextFileEstimator` asks its driver part for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class TextRequest:
    """The values of a text estimator's parameters.

    Attributes
    ----------
    feature, label
        Columns; ``label`` may be None.
    map_fun : callable
        The function.
    fit_params : sequence of dict
        A dict for each model.
    alone : bool
        Whether each model is trained by itself, on all rows; else on a cluster that shares them.
    local : str
        Where nodes run.
    settings : mapping
        What the function is told of the estimator's parameters.
    """

    feature: str
    label: str | None
    map_fun: Callable[..., Any]
    fit_params: Sequence[dict[str, Any]]
    alone: bool
    local: str
    settings: Mapping[str, Any]
