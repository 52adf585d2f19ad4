"""A Jupyter-first workbench for distributed TensorFlow on Apache Spark.

    import tfos_lab
    cluster = tfos_lab.run(map_fun, args, cluster_size=4)
    cluster.train(df, epochs=3)
    results = cluster.wait()

In a notebook: ``%load_ext tfos_lab``, then ``%%tfos cluster_size=4`` over a cell. Names are loaded when they are used,
so that ``import tfos_lab`` is quick and silent.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tfos_lab.core.version import __version__

if TYPE_CHECKING:
    from tfos_lab.core.config import ClusterConfig
    from tfos_lab.driver.cluster import Cluster
    from tfos_lab.driver.runs.table import runs
    from tfos_lab.driver.start import clusters
    from tfos_lab.errors import TfosError
    from tfos_lab.node.context.context import NodeContext, local_context
    from tfos_lab.notebook.parallel import parallel
    from tfos_lab.notebook.run_script import run_script, scripts
    from tfos_lab.notebook.search import search
    from tfos_lab.notebook.start import run, start
    from tfos_lab.scoring.predict import predict

# Public name → the module it lives in.
_HOMES = {
    "Cluster": "tfos_lab.driver.cluster",
    "ClusterConfig": "tfos_lab.core.config",
    "NodeContext": "tfos_lab.node.context.context",
    "TfosError": "tfos_lab.errors",
    "clusters": "tfos_lab.driver.start",
    "local_context": "tfos_lab.node.context.context",
    "parallel": "tfos_lab.notebook.parallel",
    "predict": "tfos_lab.scoring.predict",
    "run": "tfos_lab.notebook.start",
    "run_script": "tfos_lab.notebook.run_script",
    "runs": "tfos_lab.driver.runs.table",
    "scripts": "tfos_lab.notebook.run_script",
    "search": "tfos_lab.notebook.search",
    "start": "tfos_lab.notebook.start",
}
_PACKAGES = ("compat", "data", "errors", "gfile", "ml")

__all__ = [
    "Cluster",
    "ClusterConfig",
    "NodeContext",
    "TfosError",
    "__version__",
    "clusters",
    "local_context",
    "parallel",
    "predict",
    "run",
    "run_script",
    "runs",
    "scripts",
    "search",
    "start",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _PACKAGES:
        return importlib.import_module(f"tfos_lab.{name}")
    raise AttributeError(f"module 'tfos_lab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES])


def load_ipython_extension(ipython: Any) -> None:
    """Register the magics: what ``%load_ext tfos_lab`` calls."""
    from tfos_lab.notebook.magics import load_ipython_extension as load

    load(ipython)
