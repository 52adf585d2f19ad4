"""The charts of the saved output."""

from __future__ import annotations

import re

import pytest

from tfos_lab.engine.state.events import MetricsReported
from tfos_lab.jupyter.display.metric_charts import MAX_CHARTS, render_charts, round_ticks
from tfos_lab.jupyter.display.series import all_series

NODES = ["chief:0", "worker:0"]


def drawn(*values: float, metric: str = "loss", nodes=NODES, steps: bool = True) -> str:
    reports = [
        MetricsReported(
            time_s=float(step), node=node, step=step if steps else None, total_steps=None, metrics={metric: value}
        )
        for step, value in enumerate(values)
        for node in nodes
    ]
    return render_charts(all_series(reports, 0.0), nodes)


def test_a_chart_has_a_line_in_the_colour_of_each_node() -> None:
    chart = drawn(3.0, 2.0, 1.0)
    assert re.findall(r'class="tfos-line (tfos-hue\d)"', chart) == ["tfos-hue0", "tfos-hue1"]
    assert 'aria-label="loss: chief:0 1, worker:0 1"' in chart
    assert '<path d="M46 6L179 58L312 110"' in chart


def test_a_line_does_not_run_back_when_steps_restart() -> None:
    reports = [
        MetricsReported(time_s=float(time_s), node="chief:0", step=time_s % 3, total_steps=None, metrics={"loss": 1.0})
        for time_s in range(5)
    ]
    [path] = re.findall(r'<path d="M46 ([^"]+)"', render_charts(all_series(reports, 0.0), NODES))
    positions = [float(point.split()[0]) for point in path.split("L")[1:]]
    assert positions == sorted(positions)


def test_without_reports_nothing_is_drawn() -> None:
    assert render_charts([], NODES) == ""


def test_names_and_values_cannot_become_markup() -> None:
    chart = drawn(1.0, 2.0, metric='<script>"x"</script>')
    assert "<script" not in chart
    assert "&lt;script&gt;" in chart


def test_gaps_single_points_and_flat_lines_are_drawn() -> None:
    nan = float("nan")
    assert re.search(r'd="M[^ML]+L[^ML]+M[^ML]+L[^ML]+"', drawn(1.0, 2.0, nan, 2.0, 1.0, nodes=["a"]))
    assert "<circle" in drawn(1.0)
    assert "not finite" in drawn(nan, nan)
    assert "L312 58" in drawn(5.0, 5.0)


def test_a_long_run_costs_little_and_loses_no_peak() -> None:
    values = [1.0] * 590
    values[77] = 100.0
    chart = drawn(*values)
    assert len(chart) < 8000
    assert re.search(r"L[\d.]+ 6L", chart), "the highest value touches the top"


def test_many_metrics_are_counted() -> None:
    report = MetricsReported(time_s=0, node="a", step=1, total_steps=None, metrics={f"m{n}": 1.0 for n in range(20)})
    chart = render_charts(all_series([report], 0.0), ["a"])
    assert chart.count("<svg") == MAX_CHARTS
    assert "and 11 more metrics" in chart


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
        (0.0012, 0.0017, [0.0012, 0.0013, 0.0014, 0.0015, 0.0016, 0.0017]),
        (98_765, 123_456, [100_000, 105_000, 110_000, 115_000, 120_000]),
    ],
)
def test_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert round_ticks(low, high) == pytest.approx(ticks)
