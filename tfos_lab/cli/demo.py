"""``tfos-lab demo``: executes the first notebook on local Spark, and prints what it trained.

All numbers come from the notebook: after the last cell, `final_state` is evaluated in its kernel.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tfos_lab.cli.notebook_run import CellFailure, KernelDied, Section, Watcher, run_notebook
from tfos_lab.cli.paths import QUICKSTART, find_checkout, kernel_environ, spark_log
from tfos_lab.cli.terminal import StatusLine, echo, echo_error, paint
from tfos_lab.core.launchers import LAUNCHERS
from tfos_lab.engine.doctor.programs import check_java
from tfos_lab.errors import NoModel
from tfos_lab.texts import format_count

# Evaluated in the kernel, see `final_state`.
FINAL = "__import__('tfos_lab.cli.demo', fromlist=['final_state']).final_state(globals())"
_TITLE_WIDTH = 34
# Log lines of TensorFlow's C++ code look like this; they are of no use in a status line.
_LIBRARY_LINE = re.compile(r"\] [IWEF]\d{4} ")
# Names of a cluster's phases, by the timing that ends each.
_PHASES = {
    "launched": "launch",
    "reserved": "reserve",
    "running": "import and start",
    "fed": "feed",
    "done": "train",
}
_INDENT = 16
_WIDTH = 100


def run(arguments: Sequence[str]) -> int:
    """Execute the notebook and report; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tfos-lab demo", description="Execute a notebook on local Spark and report what it trained."
    )
    parser.add_argument("notebook", nargs="?", type=Path, help="a notebook to execute instead of the first tutorial")
    checkout = find_checkout()
    path = parser.parse_args(arguments).notebook or (checkout / "notebooks" / QUICKSTART if checkout else None)
    problem = _what_is_missing(path)
    if path is None or problem:
        echo_error(f"tfos-lab demo: {problem}")
        return 1
    echo(f"{paint(str(_short(path)), 'bold')} on local Spark\n")
    progress = _Progress()
    try:
        environ = kernel_environ(os.environ, checkout)
        finished = run_notebook(path, folder=Path.cwd(), environ=environ, final=FINAL, watcher=progress)
    except (CellFailure, KernelDied) as error:
        progress.failed()
        echo_error(f"\n{error}\n\n{_where_to_look()}")
        return 1
    command = "make lab" if checkout == Path.cwd() else "tfos-lab lab"
    echo(f"\n{render_report(finished.state)}\n\nTry it yourself: {command}")
    return 0


def _what_is_missing(path: Path | None) -> str:
    """Return what the demo lacks, as a sentence, or nothing."""
    if path is None:
        return "the notebooks are not part of the installed package: run this in a checkout, or name a notebook"
    if not path.is_file():
        return f"there is no notebook {path}"
    if importlib.util.find_spec("nbclient") is None:
        return "nbclient is not installed here: pip install 'tfos_lab[lab]'"
    java = check_java(os.environ)
    return "" if java.ok else java.sentence


def _short(path: Path) -> Path:
    path = path.resolve()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _where_to_look() -> str:
    runs = Path("runs").absolute()
    return f"Logs of nodes are in {runs}, Spark's are in {spark_log()}. `tfos-lab doctor` looks for causes."


class _Progress(Watcher):
    """A line per section: its latest output, then how long it took."""

    def __init__(self) -> None:
        self._line = StatusLine()
        self._title = ""

    def on_begin(self, section: Section) -> None:
        self._title = section.title
        self._line.show(f"  … {section.title}")

    def on_output(self, section: Section, line: str) -> None:
        if not _LIBRARY_LINE.search(line):
            self._line.show(f"  … {section.title:<{_TITLE_WIDTH}}  {line}")

    def on_end(self, section: Section) -> None:
        self._line.finish(f"  {paint('✓', 'green')} {section.title:<{_TITLE_WIDTH}} {section.seconds:6.1f} s")

    def failed(self) -> None:
        """Mark the section in which it failed."""
        self._line.finish(f"  {paint('✗', 'red')} {self._title}")


# ---- in the notebook's kernel ---------------------------------------------------------------------------------------


def final_state(names: Mapping[str, Any]) -> str:
    """Return what the notebook did, as JSON: its clusters, and the variables ``digits``, ``accuracy`` and ``history``.

    Runs in the kernel, with the notebook's names.
    """
    from tfos_lab.engine.start import clusters

    digits, accuracy = names.get("digits"), names.get("accuracy")
    state = {
        "clusters": [_cluster_state(cluster) for cluster in clusters()],
        "data": repr(digits).strip("<>") if digits is not None else None,
        "tested": len(digits.y_test) if digits is not None else None,
        "accuracy": float(accuracy) if accuracy is not None else None,
        "trained": list(names.get("history", {}).get("accuracy", [])),
    }
    return json.dumps(state)


def _cluster_state(cluster: Any) -> dict[str, Any]:
    view = cluster.view()
    timings = dict(view.timings)
    feed = view.feeds[-1] if view.feeds else None
    if feed is not None and feed.ended_s is not None:
        timings["fed"] = feed.ended_s
    return {
        "launcher": view.launcher,
        "nodes": [node.name for node in view.nodes],
        "rows_fed": feed.rows if feed is not None else {},
        "rows_read": {node.name: node.rows for node in view.nodes},
        "timings": timings,
        "model": _model_of(cluster),
    }


def _model_of(cluster: Any) -> str:
    """Return the file of the cluster's model, relative to this folder if it is in it, or nothing."""
    try:
        return str(_short(cluster.model_path))
    except NoModel:
        return ""


# ---- the report -----------------------------------------------------------------------------------------------------


def render_report(state: Mapping[str, Any]) -> str:
    """Return what the notebook trained, as text."""
    if not state["clusters"]:
        return "The notebook started no cluster."
    first, *others = state["clusters"]
    where = LAUNCHERS[first["launcher"]].place
    nodes = ", ".join(first["nodes"])
    rows = [("nodes", nodes), ("data", state["data"]), ("rows fed", _rows(first))]
    if state["accuracy"] is not None:
        tested = f" of {state['tested']:,} digits that it had not seen" if state["tested"] else ""
        rows.append(("accuracy", f"{state['accuracy']:.1%}{tested}"))
    rows.append(("model", first["model"]))
    rows.append(
        ("seconds", " · ".join(f"{name} {_seconds(took_s)}" for name, took_s in phase_seconds(first["timings"])))
    )
    if others and "running" in others[0]["timings"]:
        rows.append(("next cluster", f"its first line ran {others[0]['timings']['running']:.2f} s after the call"))
    headline = f"Trained on {format_count(len(first['nodes']), 'node')} of {where}."
    return "\n".join([paint(headline, "bold"), *(_row(name, text) for name, text in rows if text)])


def _row(name: str, text: str) -> str:
    indent = " " * _INDENT
    return textwrap.fill(f"{name:<{_INDENT - 3}} {text}", _WIDTH, initial_indent="  ", subsequent_indent=indent)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds >= 1 else f"{seconds:.2f}"


def _rows(cluster: Mapping[str, Any]) -> str:
    """Return how many rows were fed, to which nodes, and how often they were read."""
    fed = sum(cluster["rows_fed"].values())
    if not fed:
        return ""
    times = round(sum(cluster["rows_read"].values()) / fed)
    each = ", ".join(f"{node} {count:,}" for node, count in cluster["rows_fed"].items())
    return f"{fed:,}, read {times} times ({each})" if times > 1 else f"{fed:,} ({each})"


def phase_seconds(timings: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return how long each phase took, in order, from the seconds at which each ended.

    Examples
    --------
    >>> phase_seconds({"launched": 0.5, "done": 9.5, "running": 2.0})
    [('launch', 0.5), ('import and start', 1.5), ('train', 7.5)]
    """
    ends = sorted((end_s, _PHASES[mark]) for mark, end_s in timings.items() if mark in _PHASES)
    return [(name, end_s - before_s) for (before_s, _), (end_s, name) in pairwise([(0.0, ""), *ends])]
