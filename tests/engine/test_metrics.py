"""What nodes report, as a table and as a figure."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt

from tests.support.fake_cluster import FakeCluster
from tfos_lab.engine.metrics import draw_cluster, metrics_frame, steps_go_on
from tfos_lab.engine.state.events import MetricsReported


def reported(node: str, time_s: float, step: int | None, **metrics: float) -> MetricsReported:
    return MetricsReported(time_s=time_s, node=node, step=step, total_steps=None, metrics=metrics)


REPORTS = [
    reported("chief:0", 101.0, 1, loss=2.0),
    reported("worker:0", 101.5, None, loss=3.0, accuracy=0.5, epoch=1),
    reported("chief:0", 102.0, 2, loss=1.0),
]


def test_the_table_has_a_row_for_each_report_and_a_column_for_each_metric() -> None:
    frame = metrics_frame(REPORTS, 100.0)
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == {
        "time": "float64",
        "node": "string",
        "step": "Int64",
        "loss": "float64",
        "accuracy": "float64",
        "epoch": "float64",
    }
    assert frame["time"].tolist() == [1.0, 1.5, 2.0]
    assert frame["step"].isna().tolist() == [False, True, False]
    assert math.isnan(frame["accuracy"][0])
    assert frame.pivot_table(index="node", values="loss", aggfunc="min")["loss"].to_dict() == {
        "chief:0": 1.0,
        "worker:0": 3.0,
    }


def test_before_the_first_report_the_table_is_empty_and_has_its_columns() -> None:
    frame = metrics_frame([], 100.0)
    assert frame.empty
    assert list(frame) == ["time", "node", "step"]
    assert str(frame["step"].dtype) == "Int64"


def test_a_metric_may_have_the_name_of_a_column() -> None:
    frame = metrics_frame([reported("chief:0", 101.0, 1, time=7.0)], 100.0)
    assert frame.loc[0, ["time", "time_"]].tolist() == [1.0, 7.0]


def test_the_figure_has_a_plot_for_each_metric_and_a_timeline() -> None:
    cluster = FakeCluster(nodes=2)
    cluster.alter(timings={"launched": 0.1, "running": 1.0})
    before = plt.get_fignums()
    figure = draw_cluster(cluster.view(), REPORTS)
    assert plt.get_fignums() == before, "a notebook would show it twice"
    loss, accuracy, timeline = figure.axes
    assert (loss.get_title("left"), accuracy.get_title("left")) == ("loss", "accuracy")
    assert [line.get_label() for line in loss.lines] == ["chief:0", "worker:0"]
    assert loss.lines[0].get_ydata().tolist() == [2.0, 1.0]
    assert loss.get_xlabel() == "seconds", "one of the reports has no step"
    assert [text.get_text().split()[0] for text in timeline.get_legend().texts] == ["launch", "start", "run"]


def test_the_lines_of_forty_nodes_differ_and_their_legend_stays_low() -> None:
    cluster = FakeCluster(nodes=40)
    reports = [reported(node.node, 101.0, 1, loss=1.0) for node in cluster.view().nodes]
    loss = draw_cluster(cluster.view(), reports).axes[0]
    assert len({(line.get_color(), line.get_linestyle()) for line in loss.lines}) == 40
    assert loss.get_legend()._ncols == 4


def test_steps_that_begin_anew_are_drawn_over_time() -> None:
    assert steps_go_on([0, 1, 1, 5])
    assert not steps_go_on([0, 1, 0])
    assert not steps_go_on([0, None, 2])
    forth, back = reported("chief:0", 103.0, 3, loss=1.0), reported("chief:0", 104.0, 1, loss=2.0)
    assert draw_cluster(FakeCluster(nodes=2).view(), [REPORTS[0], forth]).axes[0].get_xlabel() == "step"
    assert draw_cluster(FakeCluster(nodes=2).view(), [REPORTS[0], forth, back]).axes[0].get_xlabel() == "seconds"


def test_without_metrics_there_is_the_timeline() -> None:
    assert len(draw_cluster(FakeCluster(nodes=1).view(), []).axes) == 1
