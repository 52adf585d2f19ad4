"""Spark's resources of the task that holds a node's slot, as the node's processes see them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

_VARIABLE = "TFOS_LAB_RESOURCES"


def resource_environ(resources: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the variable that tells a node the addresses of its resources, by name; nothing if there are none."""
    return (
        {_VARIABLE: json.dumps({name: list(addresses) for name, addresses in resources.items()})} if resources else {}
    )


def task_resources() -> dict[str, list[str]]:
    """Return the addresses of this node's resources, by Spark's names for them; empty elsewhere than on Spark."""
    found: dict[str, list[str]] = json.loads(os.environ.get(_VARIABLE, "{}"))
    return found
