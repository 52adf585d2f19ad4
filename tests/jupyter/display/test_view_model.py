"""The cluster as the front end gets it."""

from __future__ import annotations

import dataclasses
import json

from tests.jupyter.views import view_of
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
