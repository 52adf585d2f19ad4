"""A real IPython shell for the tests of the notebook edge."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from tests.jupyter.scripted import ScriptedCluster
from tfos_lab.jupyter.magics import load_ipython_extension, unload_ipython_extension


@pytest.fixture(autouse=True)
def cold(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Do not import TensorFlow when the extension is loaded; what would be warmed is recorded."""
    asked: list[str] = []
    monkeypatch.setattr("tfos_lab.jupyter.magics.warm_in_background", lambda: asked.append("in background"))
    monkeypatch.setattr("tfos_lab.jupyter.commands.tools.warm", lambda: asked.append("now") or "this machine")
    return asked


@pytest.fixture
def shell() -> Iterator[Any]:
    """The shell of this process, with the names of a fresh notebook."""
    main = sys.modules["__main__"]
    shell = InteractiveShell.instance()
    sys.modules["__main__"] = shell.user_module
    before = dict(shell.user_ns)
    yield shell
    for name in set(shell.user_ns) - set(before):
        del shell.user_ns[name]
    shell.user_ns.update(before)
    sys.modules["__main__"] = main


@pytest.fixture
def run_cell(shell: Any) -> Any:
    """Run a cell as a front end does; its errors are raised."""

    def run(text: str) -> Any:
        result = shell.run_cell(text, store_history=True)
        result.raise_error()
        return result.result

    return run


@pytest.fixture
def magics(shell: Any) -> Iterator[Any]:
    """The shell with the extension loaded."""
    load_ipython_extension(shell)
    yield shell
    unload_ipython_extension(shell)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give these clusters to the next cells instead of real ones; the arguments of each start are recorded."""
    clusters: list[ScriptedCluster] = []
    started: list[dict[str, Any]] = []

    def make_cluster(map_fun: Any, args: Any = None, *, spark: Any = None, config: Any) -> ScriptedCluster:
        started.append({"map_fun": map_fun, "args": args, "spark": spark, "config": config})
        return clusters[len(started) - 1]

    monkeypatch.setattr("tfos_lab.engine.start.make_cluster", make_cluster)
    for module in ("run", "commands.clusters"):
        monkeypatch.setattr(f"tfos_lab.jupyter.{module}.clusters", lambda: clusters[: len(started)])

    def prepare(*prepared: ScriptedCluster) -> list[dict[str, Any]]:
        clusters.extend(prepared)
        return started

    return prepare
