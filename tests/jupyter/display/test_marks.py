"""How nodes are told apart in saved output."""

from __future__ import annotations

import re
from pathlib import Path

from tfos_lab.jupyter.display.marks import DASHES, HUES, dash_at, draw_line, draw_mark, draw_sample, hue_at

MARKS = Path(__file__).parents[3] / "extensions/dashboard/src/marks.ts"


def test_sixty_four_nodes_have_marks_of_their_own() -> None:
    assert len({(hue_at(place), dash_at(place)) for place in range(64)}) == 64
    assert all(dash_at(place) != dash_at(place + 1) for place in range(200)), "neighbours never depend on their colours"


def test_lines_and_marks_are_those_of_the_live_view() -> None:
    source = MARKS.read_text()
    assert f"const HUES = {HUES};" in source
    [dashes] = re.findall(r"const DASHES = \[(.*)\];", source)
    assert tuple(re.findall('"([^"]*)"', dashes)) == DASHES
    [corners] = re.findall(r"const CORNERS = \[(.*)\];", source)
    drawn = [draw_mark(place, 1, 2) for place in range(4)]
    for points, mark in zip(re.findall('"([^"]*)"', corners), drawn, strict=True):
        assert f'points="{points}"' in mark if points else "<circle" in mark


def test_a_dash_stays_where_styles_are_stripped() -> None:
    assert 'stroke-dasharray="6 2.5"' in draw_line(1, "M0 0H9")
    assert "dasharray" not in draw_line(0, "M0 0H9")
    assert draw_sample(17).startswith('<svg class="tfos-sample tfos-hue1"')
