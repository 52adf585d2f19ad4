"""What nodes print is rendered as a terminal would, however it was cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfos_lab.jupyter.display.log_text import MAX_LINE_CHARS, LineBuffer, render_log
from tfos_lab.jupyter.display.runs import merge_runs, plain_text

# A Keras 3 progress bar as it is written to a pipe: backspaces, a carriage return, colours.
KERAS = (
    "\x1b[1m1/2\x1b[0m \x1b[32m━━\x1b[0m\x1b[37m━━\x1b[0m \x1b[1m0s\x1b[0m 36ms/step - loss: 2.30"
    + "\b" * 40
    + "\r\x1b[1m2/2\x1b[0m \x1b[32m━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m1s\x1b[0m 36ms/step - loss: 1.87\n"
)


def shown(text: str) -> str:
    return plain_text(render_log(text))


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("one\ntwo\n", "one\ntwo\n"),
        ("no newline at the end", "no newline at the end\n"),
        ("windows\r\nline\r\n", "windows\nline\n"),
        ("10%\r20%\r100%\n", "100%\n"),
        ("long line\rshort\n", "short\n"),
        ("kept when nothing follows\r\n", "kept when nothing follows\n"),
        ("abc\b\bX\n", "aX\n"),
        ("\x1b[31mred\x1b[0m plain\n", "red plain\n"),
        ("\x1b]0;window title\x07text\n", "text\n"),
        ("\x1b[2J\x1b[Htext\n", "text\n"),
        ("old\r\x1b[Knew\n", "new\n"),
        ("bell\x07\n", "bell\n"),
        ("binary \x00\x01 rubbish\n", "binary \ufffd\ufffd rubbish\n"),
        ("half a \ud83d pair\n", "half a \ufffd pair\n"),
        ("<script>alert(1)</script>\n", "<script>alert(1)</script>\n"),
        (KERAS, "2/2 ━━━━ 1s 36ms/step - loss: 1.87\n"),
        ("", ""),
    ],
)
def test_text_is_shown_as_a_terminal_would_leave_it(written: str, seen: str) -> None:
    assert shown(written) == seen


@given(st.lists(st.text(alphabet=st.sampled_from("ab\n\r\b\x1b[0;31mK\x00 é"), max_size=8), max_size=8))
def test_it_makes_no_difference_where_the_pieces_are_cut(pieces: list[str]) -> None:
    buffer = LineBuffer()
    runs = [run for piece in pieces for run in buffer.feed(piece)]
    assert merge_runs([*runs, *buffer.flush()]) == render_log("".join(pieces))


def test_the_open_line_is_the_current_progress_bar() -> None:
    buffer = LineBuffer()
    assert plain_text(buffer.feed("start\n10%")) == "start\n"
    assert plain_text(buffer.open_line) == "10%"
    assert buffer.feed("\r20%") == []
    assert plain_text(buffer.open_line) == "20%"
    assert plain_text(buffer.feed("\n")) == "20%\n"
    assert buffer.open_line == []


def test_styles_become_css_classes_and_outlive_a_line() -> None:
    runs = render_log("\x1b[1;31mbold red\nstill\x1b[22m red\x1b[39m plain\n")
    assert runs == [
        ("bold red", "tfos-bold tfos-fg-red"),
        ("\n", ""),
        ("still", "tfos-bold tfos-fg-red"),
        (" red", "tfos-fg-red"),
        (" plain\n", ""),
    ]


def test_a_huge_line_is_cut_with_a_note_of_how_much() -> None:
    buffer = LineBuffer()
    for _ in range(100):
        buffer.feed("x" * 10_000)
    line = plain_text(buffer.feed("\n"))
    assert line == "x" * MAX_LINE_CHARS + " … 990,000 more characters\n"
    assert "… 1 more characters" in shown("short\n" + "y" * (MAX_LINE_CHARS + 1) + "\nshort\n")
