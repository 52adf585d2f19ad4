"""The packages that notebook and nodes need in the same version, and how far versions may differ."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Mapping

#: How many numbers of a version have to agree. TensorFlow's nodes talk to one another, models are saved by one Keras
#: and loaded by another, and Spark's Python workers speak the protocol of their own pyspark.
COMPARED = {"tensorflow": 2, "keras": 2, "pyspark": 2, "numpy": 1}


def compared_versions() -> dict[str, str]:
    """Return the versions of those packages in this Python, without importing them."""
    versions = {}
    for name in COMPARED:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def differing(theirs: Mapping[str, str], mine: Mapping[str, str]) -> list[str]:
    """Return half a sentence for each package whose versions differ too far.

    Examples
    --------
    >>> differing({"tensorflow": "2.19.1", "numpy": "2.1.0"}, {"tensorflow": "2.21.0", "numpy": "2.4.0"})
    ['its tensorflow is 2.19.1, and this is 2.21.0']
    """
    return [
        f"its {name} is {theirs[name]}, and this is {mine[name]}"
        for name, parts in COMPARED.items()
        if name in theirs and name in mine and theirs[name].split(".")[:parts] != mine[name].split(".")[:parts]
    ]
