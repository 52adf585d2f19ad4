"""Runs of styled text: their lines, and how they become text and HTML."""

from __future__ import annotations

from tfos_lab.jupyter.display.log_text import render_log
from tfos_lab.jupyter.display.runs import count_lines, html_text, last_lines, merge_runs, plain_text


def test_neighbours_of_one_style_are_joined() -> None:
    assert merge_runs([("a", ""), ("b", ""), ("c", "tfos-bold"), ("d", "")]) == [
        ("ab", ""),
        ("c", "tfos-bold"),
        ("d", ""),
    ]


def test_the_last_lines_are_whole_and_keep_their_style() -> None:
    runs = render_log("one\n\x1b[31mtwo\x1b[0m\nthree\n")
    assert plain_text(last_lines(runs, 2)) == "two\nthree\n"
    assert last_lines(runs, 2)[0] == ("two", "tfos-fg-red")
    assert last_lines(runs, 9) == runs
    assert plain_text(last_lines(runs, 0)) == ""
    assert count_lines(runs) == 3


def test_html_is_escaped() -> None:
    runs = render_log('\x1b[32m<img src="x" onerror=alert(1)>\x1b[0m & more\n')
    assert html_text(runs) == (
        '<span class="tfos-fg-green">&lt;img src=&quot;x&quot; onerror=alert(1)&gt;</span> &amp; more\n'
    )
