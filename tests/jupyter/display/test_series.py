"""The points that charts show: bounded, whatever is reported."""

from __future__ import annotations

import json

from tfos_lab.engine.state.events import MetricsReported
from tfos_lab.jupyter.display import series
from tfos_lab.jupyter.display.series import SeriesBook, all_series


def reported(step: int, node: str = "chief:0", **metrics: float) -> MetricsReported:
    return MetricsReported(time_s=100.0 + step, node=node, step=step, total_steps=None, metrics=metrics)


def steps(points) -> list[int]:
    return [point[1] for point in points]


def test_only_new_points_are_taken() -> None:
    book = SeriesBook(100.0)
    book.add([reported(0, loss=2.0), reported(1, loss=1.0)])
    [first] = book.take()
    assert first == {
        "metric": "loss",
        "node": "chief:0",
        "fresh": True,
        "points": [(0.0, 0, 2.0), (1.0, 1, 1.0)],
        "last": None,
    }
    assert book.take() == []
    book.add([reported(2, loss=0.5)])
    [second] = book.take()
    assert (second["fresh"], steps(second["points"])) == (False, [2])
    assert steps(book.history()[0]["points"]) == [0, 1, 2]


def test_a_long_series_is_thinned_and_keeps_its_ends() -> None:
    book = SeriesBook(100.0)
    for step in range(10_000):
        book.add([reported(step, loss=1.0)])
    [one] = book.history()
    assert len(one["points"]) <= series.MAX_POINTS
    assert one["points"][0][1] == 0
    assert (one["last"] or one["points"][-1])[1] == 9999
    gaps = {after - before for before, after in zip(steps(one["points"])[1:-1], steps(one["points"])[2:], strict=True)}
    assert max(gaps) <= 2 * min(gaps)


def test_taking_points_in_pieces_gives_the_same_as_the_history() -> None:
    book = SeriesBook(100.0)
    held: list = []
    for step in range(3000):
        book.add([reported(step, loss=1.0)])
        if step % 7 == 0:
            [one] = book.take()
            held = one["points"] if one["fresh"] else held + one["points"]
    for one in book.take():
        held = one["points"] if one["fresh"] else held + one["points"]
    assert held == book.history()[0]["points"]


def test_values_that_are_not_finite_become_valid_json() -> None:
    made = all_series([reported(0, loss=float("nan")), reported(1, loss=float("inf"))], 100.0)
    assert [point[2] for point in made[0]["points"]] == [None, None]
    json.dumps(made, allow_nan=False)


def test_many_nodes_and_metrics_share_the_points() -> None:
    reports = [
        reported(step, f"worker:{node}", **{f"m{metric}": 1.0 for metric in range(40)}, epoch=1.0)
        for step in range(300)
        for node in range(20)
    ]
    made = all_series(reports, 100.0)
    assert len({one["metric"] for one in made}) == series.MAX_METRICS
    assert "epoch" not in {one["metric"] for one in made}
    assert sum(len(one["points"]) for one in made) < 1.2 * series.MAX_ALL_POINTS
