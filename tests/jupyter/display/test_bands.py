"""The metrics of many nodes as three lines."""

from __future__ import annotations

import math

from tfos_lab.engine.state.events import ClusterView, MetricsReported, NodeView
from tfos_lab.jupyter.display.bands import BANDS, bands_now, bands_of


def view(*losses):
    nodes = tuple(
        NodeView(f"worker:{number}", "worker", number, is_chief=False, step=number, metrics={"loss": loss})
        for number, loss in enumerate(losses)
    )
    return ClusterView("id", "scale", "running", "spark", 0.0, None, nodes, {})


def test_the_bands_are_those_of_all_finite_values():
    bands = bands_now(view(1.0, 5.0, math.nan, 3.0), 7.0)
    assert {band.node: band.metrics for band in bands} == {
        "max": {"loss": 5.0},
        "median": {"loss": 3.0},
        "min": {"loss": 1.0},
    }
    assert {band.step for band in bands} == {2}


def test_nothing_is_drawn_before_there_is_anything():
    assert bands_now(view(), 7.0) == []


def test_a_whole_run_is_drawn_in_a_bounded_number_of_moments():
    reports = [
        MetricsReported(
            time_s=float(at), node=f"worker:{at % 64}", step=at, total_steps=None, metrics={"loss": 1.0 * at}
        )
        for at in range(10_000)
    ]
    bands = bands_of(reports)
    assert {band.node for band in bands} == set(BANDS)
    assert len(bands) <= 3 * 121
    assert bands[0].metrics["loss"] == max(report.metrics["loss"] for report in reports[:84])
