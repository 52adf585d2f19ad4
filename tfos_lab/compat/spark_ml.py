"""The classes of Spark ML that those of `pipeline`, and of `tfos_lab.ml`, extend.

Spark is imported when a module asks for one of them. So do `params` and `pipeline`, and nothing else of this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.ml.base import Estimator, Model
    from pyspark.ml.param import Param, Params, TypeConverters
    from pyspark.ml.util import MLReadable, MLReader, MLWritable, MLWriter

__all__ = [
    "Estimator",
    "MLReadable",
    "MLReader",
    "MLWritable",
    "MLWriter",
    "Model",
    "Param",
    "Params",
    "TypeConverters",
]

_HOMES = {
    "Estimator": "pyspark.ml.base",
    "Model": "pyspark.ml.base",
    **dict.fromkeys(("MLReadable", "MLReader", "MLWritable", "MLWriter"), "pyspark.ml.util"),
}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module(_HOMES.get(name, "pyspark.ml.param")), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
