"""Citizens of Spark ML. Names are loaded when they are used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfos_lab.ml.estimator import TFEstimator
    from tfos_lab.ml.model import TFModel
    from tfos_lab.ml.text import TFTextFileEstimator, TFTextFileModel

# Public name → the module it lives in.
_HOMES = {
    "TFEstimator": "tfos_lab.ml.estimator",
    "TFModel": "tfos_lab.ml.model",
    "TFTextFileEstimator": "tfos_lab.ml.text",
    "TFTextFileModel": "tfos_lab.ml.text",
}

__all__ = ["TFEstimator", "TFModel", "TFTextFileEstimator", "TFTextFileModel"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tfos_lab.ml' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
