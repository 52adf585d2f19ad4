"""How runs of the history are written: their names, times, outcomes and figures. Pure: runs go in, text comes out."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable, Sequence

from tfos_lab.core.markup import Html, h
from tfos_lab.driver.metrics import EPOCH, by_weight
from tfos_lab.driver.runs.run import Run
from tfos_lab.notebook.display.assets import read_style_sheet
from tfos_lab.notebook.display.formats import format_metric
from tfos_lab.texts import format_count, format_seconds

_MAX_INPUTS = 4


def style_sheets() -> str:
    """Return the style element of an output of the history."""
    return f"<style>{read_style_sheet('summary.css')}{read_style_sheet('history.css')}</style>"


def short_ids(runs: Iterable[Run]) -> dict[str, str]:
    """Return what is enough to name each run: the end of its identifier, or all of it where others end so, too."""
    ids = [run.id for run in runs]
    ends = Counter(_end(one) for one in ids)
    return {one: _end(one) if ends[_end(one)] == 1 else one for one in ids}


def _end(run_id: str) -> str:
    return run_id.rpartition("-")[2]


def when_text(time_s: float, now_s: float) -> str:
    """Return a moment as people write it: ``today 11:19``, ``14 Nov 09:05``, ``3 May 2025 17:00``."""
    moment, now = dt.datetime.fromtimestamp(time_s).astimezone(), dt.datetime.fromtimestamp(now_s).astimezone()
    clock = f"{moment:%H:%M}"
    if moment.date() == now.date():
        return f"today {clock}"
    year = "" if moment.year == now.year else f" {moment.year}"
    return f"{moment.day} {moment:%b}{year} {clock}"


def took_text(run: Run, now_s: float) -> str:
    """Return how long the run took, or goes on."""
    return format_seconds(max(0.0, (run.ended_s or now_s) - run.started_s))


def outcome_text(run: Run) -> str:
    """Return the run's state with its sign."""
    return f"{run.state.look.sign} {run.state}"


def outcome_html(run: Run) -> Html:
    """Return the run's state with its sign and colour."""
    sign = h("span", run.state.look.sign, aria_hidden="true")
    return h("span", sign, f" {run.state}", cls="tfos-state", data_state=run.state)


def error_text(run: Run) -> str:
    """Return why the run failed, or that a metric of it is not a number, in one line."""
    return run.record.view.alarm if run.record.error is None else str(run.record.error)


def metric_text(value: float | None) -> str:
    """Return a metric, or nothing where there is none."""
    return "" if value is None else format_metric(value)


def common_metrics(runs: Sequence[Run], at_most: int) -> list[str]:
    """Return the metrics that most of the runs have reported, the loss first."""
    counts = Counter(name for run in runs for name in run.last_metrics if name != EPOCH)
    ranked = sorted(by_weight(counts), key=lambda name: -counts[name])[:at_most]
    return by_weight(ranked)


def varied_inputs(runs: Sequence[Run]) -> list[str]:
    """Return the names of some inputs that are not the same in all of these runs."""
    names = dict.fromkeys(name for run in runs for name in run.inputs)
    varied = [name for name in names if len({repr(run.inputs.get(name)) for run in runs}) > 1]
    return varied[:_MAX_INPUTS]


def inputs_text(run: Run, names: Sequence[str]) -> str:
    """Return these inputs of a run: ``lr 0.1 · units 64``; of a search, those of its best trial, too."""
    own = [f"{name.removeprefix('args.')} {_plain(run.inputs[name])}" for name in names if name in run.inputs]
    return " · ".join([*own, *filter(None, [best_text(run)])])


def best_text(run: Run) -> str:
    """Return the parameters of a search's best trial: ``best: lr 0.1 · units 64``."""
    named = " · ".join(f"{name} {_plain(value)}" for name, value in list(run.best_params.items())[:_MAX_INPUTS])
    return f"best: {named}" if named else ""


def nodes_text(run: Run) -> str:
    """Return how many nodes there were, or how many independent runs."""
    count = len(run.record.view.nodes)
    noun = {"search": "trial", "parallel": "run"}.get(run.kind)
    return format_count(count, noun) if noun else str(count or "")


def _plain(value: object) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    text = str(value)
    return text if len(text) <= 24 else f"{text[:23]}…"
