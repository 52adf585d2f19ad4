"""What nodes have reported, as a pandas table and as a matplotlib figure; both libraries are imported when needed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfos_lab.driver.state.events import ClusterView, MetricsReported
from tfos_lab.driver.state.phases import Span, spans_of
from tfos_lab.texts import format_seconds

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd

FIRST_COLUMNS = ("time", "node", "step")

_COLUMNS_OF_PLOTS = 2
_PLOT_WIDTH, _PLOT_HEIGHT, _TIMELINE_HEIGHT, _TRACK_HEIGHT = 4.6, 2.6, 1.3, 0.2
_BAR: dict[str, Any] = {"height": 0.75, "alpha": 0.75}
_COLOURS = {
    "launch": "C0", "reserve": "C1", "release": "C2", "import": "C3", "start": "C4", "run": "C5", "restart": "C7",
    "feed": "C9", "stream": "C9", "inference": "C6",
}  # fmt: skip
_LABELS_IN_A_ROW = 8
# Matplotlib has ten colours; farther nodes have them again, with other dashes.
_LINE_COLOURS = 10
_LINE_STYLES = ("-", "--", ":", "-.")
#: What Keras' callbacks count, which is no curve: charts may be read by it.
EPOCH = "epoch"
#: What stands before the name of a metric of validation.
VALIDATION = "val_"


def metrics_frame(reports: Sequence[MetricsReported], called_s: float) -> pd.DataFrame:
    """Return the reports as a table; see `Cluster.metrics`."""
    import pandas as pd

    columns: dict[str, Any] = {
        "time": pd.Series([report.time_s - called_s for report in reports], dtype="float64"),
        "node": pd.Series([report.node for report in reports], dtype="string"),
        "step": pd.Series([report.step for report in reports], dtype="Int64"),
    }
    for name in metric_names(reports):
        # A metric may have the name of one of our columns.
        column = f"{name}_" if name in FIRST_COLUMNS else name
        values = [report.metrics.get(name, float("nan")) for report in reports]
        columns[column] = pd.Series(values, dtype="float64")
    return pd.DataFrame(columns)


def metric_names(reports: Sequence[MetricsReported]) -> list[str]:
    """Return the names of all metrics, in the order in which they were first reported."""
    return list(dict.fromkeys(name for report in reports for name in report.metrics))


def by_weight(names: Iterable[str]) -> list[str]:
    """Return names of metrics in the order in which people read them: the loss first, those of validation last.

    Of a model with several outputs, whose losses are metrics, too, the whole loss is first. Behind them all is the
    number of epochs, which the steps show already.
    """

    def weight(name: str) -> tuple[bool, ...]:
        metric = name.removeprefix(VALIDATION)
        return name == EPOCH, metric != name, metric != "loss", "loss" not in name

    return sorted(names, key=weight)


class Curves:
    """Picks the values of which the curves of metrics are made.

    Keras' callbacks report a metric within an epoch, as the mean of some steps, and at its end, as the mean of all of
    them. Both in one line would be a line with a spike at each epoch: where there are the former, the latter are apart.
    """

    def __init__(self) -> None:
        self._within: set[tuple[str, str]] = set()

    def points(self, report: MetricsReported) -> dict[str, float]:
        """Return the metrics of a report, the next one in time, that are points of their curves."""
        if EPOCH not in report.metrics:
            self._within.update((report.node, name) for name in report.metrics)
            return report.metrics
        return {name: value for name, value in report.metrics.items() if (report.node, name) not in self._within}


def on_curves(reports: Iterable[MetricsReported]) -> list[MetricsReported]:
    """Return reports with those of their metrics only that are points of curves."""
    curves = Curves()
    return [replace(report, metrics=curves.points(report)) for report in reports]


def steps_go_on(steps: Iterable[int | None]) -> bool:
    """Return whether a line can be drawn over a node's steps: all are known, and none is less than the one before.

    Steps begin anew with a second ``fit``, and go back after a restart: then lines are drawn over time.
    """
    before = -math.inf
    for step in steps:
        if step is None or step < before:
            return False
        before = step
    return True


def draw_cluster(view: ClusterView, reports: Sequence[MetricsReported]) -> matplotlib.figure.Figure:
    """Return one plot for each metric, one line for each node, above a timeline of the phases."""
    import matplotlib.pyplot as plt

    names = by_weight(metric_names(reports))
    names = [name for name in names if name != EPOCH] or names
    nodes = [node.name for node in view.nodes]
    reports = on_curves(reports)
    rows = -(-len(names) // _COLUMNS_OF_PLOTS)
    spans = spans_of(view)
    heights = [*[_PLOT_HEIGHT] * rows, _TIMELINE_HEIGHT + _TRACK_HEIGHT * max(span.track for span in spans)]
    figure = plt.figure(figsize=(_PLOT_WIDTH * _COLUMNS_OF_PLOTS, sum(heights)), layout="constrained")
    # The caller shows it; pyplot would show it a second time at the end of the cell.
    plt.close(figure)
    grid = figure.add_gridspec(rows + 1, _COLUMNS_OF_PLOTS, height_ratios=heights)
    for index, name in enumerate(names):
        axes = figure.add_subplot(grid[divmod(index, _COLUMNS_OF_PLOTS)])
        _draw_metric(axes, name, nodes, reports, view.started_s)
        if index == 0:
            axes.legend(fontsize="small", ncols=-(-len(nodes) // _LINE_COLOURS))
    _draw_phases(figure.add_subplot(grid[rows, :]), spans)
    figure.suptitle(f"{view.name}: {view.state}")
    return figure


def _draw_metric(
    axes: Any, name: str, nodes: Sequence[str], reports: Sequence[MetricsReported], started_s: float
) -> None:
    own = [report for report in reports if name in report.metrics]
    by_step = all(steps_go_on([report.step for report in own if report.node == node]) for node in nodes)
    for number, node in enumerate(nodes):
        points = [report for report in own if report.node == node]
        positions = [report.step if by_step else report.time_s - started_s for report in points]
        values = [report.metrics[name] for report in points]
        if points:
            marker = "o" if len(points) == 1 else None  # no line goes through it
            colour = f"C{number % _LINE_COLOURS}"
            style = _LINE_STYLES[number // _LINE_COLOURS % len(_LINE_STYLES)]
            axes.plot(positions, values, label=node, linewidth=1.2, marker=marker, color=colour, linestyle=style)
    axes.set_title(name, fontsize="medium", loc="left")
    axes.set_xlabel("step" if by_step else "seconds")
    axes.grid(alpha=0.3)


def _draw_phases(axes: Any, spans: Sequence[Span]) -> None:
    """Draw the phases, with a legend as most are too short to hold their names, and a named track for each feed."""
    for span in spans:
        label = None if span.track else _label(span)
        seconds = span.end_s - span.start_s
        axes.barh(-span.track, seconds, left=span.start_s, label=label, color=_COLOURS[span.kind], **_BAR)
    names = ["", *(_label(span) for span in spans if span.track)]
    phases = len(spans) + 1 - len(names)
    axes.legend(
        fontsize="small", ncols=min(phases, _LABELS_IN_A_ROW), loc="lower left", bbox_to_anchor=(0, 1),
        frameon=False, handlelength=0.8, handletextpad=0.4, columnspacing=1.2, borderaxespad=0,
    )  # fmt: skip
    axes.set_yticks([-track for track in range(len(names))], names, fontsize="small")
    axes.tick_params("y", length=0)
    axes.set_xlabel("seconds since the call")
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)


def _label(span: Span) -> str:
    return f"{span.name} {format_seconds(span.end_s - span.start_s)}"
