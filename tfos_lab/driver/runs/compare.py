"""What two or more runs have in common, and where they differ. Pure: runs go in, texts and numbers come out."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfos_lab.driver.metrics import by_weight
from tfos_lab.driver.runs.run import Run
from tfos_lab.driver.state.events import MetricsReported
from tfos_lab.driver.state.phases import SHORTEST_S

# They differ between all runs, and say nothing about why.
_IGNORED = ("name",)
_MAX_DIFF_LINES = 400


@dataclass(frozen=True)
class Difference:
    """An option, value or fact of which the runs differ; ``texts`` has one for each run, empty where it has none."""

    name: str
    texts: tuple[str, ...]


def differences(runs: Sequence[Run]) -> list[Difference]:
    """Return what differs: values of the function first, then options, launcher and versions."""
    groups: list[Callable[[Run], dict[str, Any]]] = [
        lambda run: run.inputs,
        lambda run: {name: value for name, value in run.options.items() if name not in _IGNORED},
        lambda run: {"launcher": run.record.view.launcher, "nodes": len(run.record.view.nodes)},
        lambda run: {"fed": _fed(run), "verdict": run.record.view.verdict},
        lambda run: run.record.versions,
        lambda run: {"host": run.record.process.host},
    ]
    found = [one for group in groups for one in _differing([group(run) for run in runs])]
    # The number of nodes is shown once.
    own = {one.name for one in found}
    return [one for one in found if not (one.name == "nodes" and "cluster_size" in own)]


def _fed(run: Run) -> str:
    feeds = (feed for feed in run.record.view.feeds if not feed.split)
    return "; ".join(f"{sum(feed.rows.values()):,} rows × {feed.epochs}" for feed in feeds)


def _differing(dicts: Sequence[dict[str, Any]]) -> Iterable[Difference]:
    for name in dict.fromkeys(key for one in dicts for key in one):
        texts = tuple(_text(one[name]) if name in one else "" for one in dicts)
        if len(set(texts)) > 1:
            yield Difference(name, texts)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def last_metrics(runs: Sequence[Run]) -> dict[str, list[float | None]]:
    """Return the last value of each metric, one for each run, None where a run has not reported it."""
    own = [run.last_metrics for run in runs]
    names = by_weight(dict.fromkeys(name for one in own for name in one))
    return {name: [one.get(name) for one in own] for name in names}


def phase_seconds(runs: Sequence[Run]) -> dict[str, list[float | None]]:
    """Return the seconds of each phase that took some in a run, one for each run, None where it had no such phase."""
    own = [run.phases for run in runs]
    names = dict.fromkeys(name for one in own for name, seconds in one.items() if seconds >= SHORTEST_S)
    return {name: [one.get(name) for one in own] for name in names}


def leading_reports(run: Run) -> list[MetricsReported]:
    """Return the reports from which the run's curves are drawn: of each metric, those of the first node that has it."""
    place = {node.name: number for number, node in enumerate(run.record.view.nodes)}
    reports = run.reports
    leader: dict[str, str] = {}
    for report in sorted(reports, key=lambda one: place.get(one.node, len(place))):
        for name in report.metrics:
            leader.setdefault(name, report.node)
    kept = []
    for report in reports:
        own = {name: value for name, value in report.metrics.items() if leader[name] == report.node}
        if own:
            kept.append(replace(report, metrics=own))
    return kept


def code_diff(first: Run, second: Run) -> list[str]:
    """Return the lines of code that differ, with some lines around them; none where the code is the same."""
    before, after = first.code.splitlines(), second.code.splitlines()
    lines = list(difflib.unified_diff(before, after, first.id, second.id, n=2, lineterm=""))
    more = len(lines) - _MAX_DIFF_LINES
    return [*lines[:_MAX_DIFF_LINES], f"… {more} more lines"] if more > 0 else lines
