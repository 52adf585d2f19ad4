"""The cluster as the front end gets it."""

from __future__ import annotations

import dataclasses
import json

from tests.jupyter.views import view_of
from tests.support.staged_views import INPUT, make_hang, make_straggle, staged_cluster
from tfos_lab.engine.state.events import FeedView
from tfos_lab.jupyter.display.view_model import encode_view


def test_the_view_is_json() -> None:
    view = view_of("running", "running", "failed", detail="ValueError: no")
    encoded = encode_view(view, "/runs/1", 12.0)
    assert json.loads(json.dumps(encoded, allow_nan=False)) == encoded
    assert (encoded["run_dir"], encoded["now_s"], encoded["headline"]) == ("/runs/1", 12.0, "1/2 nodes running")
    assert [column["key"] for column in encoded["columns"]] == ["node", "state"]
    assert [row["broken"] for row in encoded["rows"]] == ["", "ValueError: no"]
    assert encoded["feed"] is None


def test_the_last_feed_comes_with_lines_for_the_earlier_ones() -> None:
    feeds = tuple(FeedView(number=number, rows={"chief:0": 10}, complete=True) for number in range(2))
    encoded = encode_view(dataclasses.replace(view_of("running", "running"), feeds=feeds), "/runs/1", 12.0)
    assert encoded["feed"]["older"] == ["feed 1: 10 rows"]
    assert encoded["feed"]["line"].startswith("feed 2: 10 rows fed")
    assert (encoded["feed"]["progress"], encoded["feed"]["complete"]) == (1.0, True)


def test_what_nodes_do_comes_as_figures_and_as_text() -> None:
    cluster = staged_cluster(INPUT)
    make_straggle(cluster, "worker:0")
    make_hang(cluster, "worker:1")
    encoded = encode_view(cluster.view(), "/runs/1", 12.0)
    assert (encoded["verdict"], encoded["progress"], encoded["left"]) == (INPUT.verdict, 0.625, "31 s left")
    chief, straggler, hung, _ = encoded["rows"]
    assert chief["shares"] == [0.62, 0.0, 0.03, 0.3, 0.05]
    assert chief["cells"]["shares"].startswith("waits for rows 62 %, computes 30 %")
    assert (straggler["step_time"], straggler["straggles"]) == ("250 ms", "2.1× slower")
    assert hung["hung"].startswith("no step for 64 s")
    assert chief["hung"] == chief["straggles"] == ""


def test_a_node_that_has_ended_hangs_no_more_and_nothing_is_left() -> None:
    cluster = staged_cluster(INPUT)
    make_hang(cluster, "worker:1")
    cluster.change("worker:1", state="lost")
    cluster.set_state("failed")
    encoded = encode_view(cluster.view(), "/runs/1", 12.0)
    assert [row["hung"] for row in encoded["rows"]] == [""] * 4
    assert (encoded["progress"], encoded["left"]) == (None, "")
