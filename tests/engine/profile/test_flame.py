"""The flame graph: widths are shares of the time, and names are text."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tfos_lab.engine.profile.flame import flame_graph, hottest, tree_of

SAMPLES = [
    (["\tmain thread", "\ttrain (cell:3)", "keras\tfit (trainer.py:1)"], 6),
    (["\tmain thread", "\ttrain (cell:3)", "\tload <rows> (cell:9)"], 3),
    (["\treader", "numpy\tsvd (linalg.py:1)"], 1),
]
SVG = "{http://www.w3.org/2000/svg}"


def boxes(svg):
    """Return title → (x, y, width, colour)."""
    root = ET.fromstring(svg)
    found = {}
    for group in root.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        place = tuple(float(rect.get(name)) for name in ("x", "y", "width"))
        found[group.find(f"{SVG}title").text] = (*place, rect.get("fill"))
    return found


def test_samples_become_a_tree():
    root = tree_of(SAMPLES)
    main = root.calls["\tmain thread"]
    assert (root.count, main.count, main.name) == (10, 9, "main thread")
    fit = main.calls["\ttrain (cell:3)"].calls["keras\tfit (trainer.py:1)"]
    assert (fit.package, fit.name, fit.count) == ("keras", "fit (trainer.py:1)", 6)


def test_a_box_is_as_wide_as_its_share_of_the_time_and_below_its_caller():
    drawn = boxes(flame_graph(SAMPLES, title="worker:0", period_s=0.01))
    main, fit = drawn["main thread: 90.0 %, 0.09 s"], drawn["fit (trainer.py:1): 60.0 %, 0.06 s"]
    load, svd = drawn["load <rows> (cell:9): 30.0 %, 0.03 s"], drawn["svd (linalg.py:1): 10.0 %, 0.01 s"]
    assert (main[2], fit[2], load[2], svd[2]) == pytest.approx((900, 600, 300, 100))
    assert (main[0], fit[0], load[0], svd[0]) == pytest.approx((0, 0, 600, 900))
    assert main[1] < fit[1] == load[1]
    assert fit[3] != load[3] == main[3]


def test_the_picture_needs_nothing_else_and_names_are_text():
    svg = flame_graph([(["\t<script>alert(1)</script>"], 1)], title="<b>", period_s=0.01)
    assert "<script" not in svg
    assert ET.fromstring(svg).find(f"{SVG}text").text == "<b>"
    assert svg.count("http") == 1  # its own namespace


def test_no_samples_are_an_empty_picture():
    assert boxes(flame_graph([], title="nothing", period_s=0.01)) == {}


def test_the_hottest_functions_are_the_innermost_ones():
    assert hottest(SAMPLES, 2) == [("fit (trainer.py:1)", 0.6), ("load <rows> (cell:9)", 0.3)]
    assert hottest([]) == []
