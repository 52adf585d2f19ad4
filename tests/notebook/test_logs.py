"""What nodes print on its way to a page: as a terminal would show it, in order, bounded, what is missing counted."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfos_lab.driver.state.events import LogText
from tfos_lab.notebook.display.log_feed import LogFeed

# A Keras 3 progress bar as it is written to a pipe: backspaces, a carriage return, colours.
KERAS = (
    "\x1b[1m1/2\x1b[0m \x1b[32m━━\x1b[0m\x1b[37m━━\x1b[0m \x1b[1m0s\x1b[0m 36ms/step - loss: 2.30"
    + "\b" * 40
    + "\r\x1b[1m2/2\x1b[0m \x1b[32m━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m1s\x1b[0m 36ms/step - loss: 1.87\n"
)


def write(feed: LogFeed, node: str, text: str, stream: str = "stdout") -> None:
    feed.take_in(LogText(time_s=0.0, node=node, stream=stream, text=text))


def plain(shown: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", shown))


def texts(batch) -> list[tuple[str, str]]:
    return [(chunk["node"], plain(chunk["html"])) for chunk in batch["chunks"]]


def drawn(*pieces: str) -> str:
    """All that is shown of these pieces, with its styles."""
    feed = LogFeed()
    for piece in pieces:
        write(feed, "chief:0", piece)
    batch = feed.take_out() or {"chunks": [], "open": {}}
    return "".join(chunk["html"] for chunk in batch["chunks"]) + batch["open"].get("chief:0", "")


# ---- as a terminal would --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("one\ntwo\n", "one\ntwo\n"),
        ("windows\r\nline\r\n", "windows\nline\n"),
        ("10%\r20%\r100%\n", "100%\n"),
        ("long line\rshort\n", "short\n"),
        ("kept when nothing follows\r\n", "kept when nothing follows\n"),
        ("abc\b\bX\n", "aX\n"),
        ("\x1b]0;window title\x07text\n", "text\n"),
        ("\x1b[2J\x1b[Htext\n", "text\n"),
        ("old\r\x1b[Knew\n", "new\n"),
        ("bell\x07\n", "bell\n"),
        ("binary \x00\x01 rubbish\n", "binary \ufffd\ufffd rubbish\n"),
        ("half a \ud83d pair\n", "half a \ufffd pair\n"),
        (KERAS, "2/2 ━━━━ 1s 36ms/step - loss: 1.87\n"),
    ],
)
def test_text_is_shown_as_a_terminal_would_leave_it(written, seen):
    assert plain(drawn(written)) == seen


@given(st.lists(st.text(alphabet=st.sampled_from("ab\n\r\b\x1b[0;31mK\x00 é"), max_size=8), max_size=8))
def test_it_makes_no_difference_where_the_pieces_are_cut(pieces):
    assert drawn(*pieces) == drawn("".join(pieces))


def test_no_style_goes_over_the_end_of_a_line_and_no_text_is_markup():
    red = '<span class="tfos-fg-red">{}</span>'
    shown = drawn("\x1b[31m<b>\nmore\x1b[0m\n")
    assert shown == f"{red.format('&lt;b&gt;')}\n{red.format('more')}\n"


@pytest.mark.parametrize(
    ("parameters", "classes"),
    [
        ("92", "tfos-fg-bright-green"),
        ("41", "tfos-bg-red"),
        ("38;5;1", "tfos-fg-red"),
        ("38;5;46", "tfos-fg-bright-green"),
        ("38;2;10;10;150", "tfos-fg-blue"),
        ("38;5", ""),
        ("999", ""),
        ("4;7", "tfos-underline tfos-inverse"),
    ],
)
def test_every_colour_becomes_one_of_sixteen(parameters, classes):
    assert drawn(f"\x1b[{parameters}mx") == (f'<span class="{classes}">x</span>' if classes else "x")


def test_a_huge_line_is_cut_with_a_note_of_how_much_and_costs_no_more_than_its_beginning():
    feed = LogFeed()
    for _ in range(100):
        write(feed, "chief:0", "z" * 1_000_000)
        batch = feed.take_out()
        assert batch is None or sum(map(len, batch["open"].values())) < 20_000
    write(feed, "chief:0", "\nnext\n")
    [(_, text)] = texts(feed.take_out())
    assert text.endswith(" more characters\nnext\n")
    assert len(text) < 20_000


# ---- in batches -----------------------------------------------------------------------------------------------------


def test_lines_keep_their_order_and_neighbours_are_joined():
    feed = LogFeed()
    for node, text in [("chief:0", "a\nb\n"), ("chief:0", "c\n"), ("worker:0", "d\n"), ("chief:0", "e\n")]:
        write(feed, node, text)
    batch = feed.take_out()
    assert texts(batch) == [("chief:0", "a\nb\nc\n"), ("worker:0", "d\n"), ("chief:0", "e\n")]
    assert [chunk["lines"] for chunk in batch["chunks"]] == [3, 1, 1]
    assert batch["seq"] == 1
    for number in range(100):
        write(feed, "chief:0", f"{number}\n")
        write(feed, "worker:0", f"{number}\n")
    whole = "".join(f"{number}\n" for number in range(100))
    assert texts(feed.take_out()) == [("chief:0", whole), ("worker:0", whole)], "many pieces are sorted by node"


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("a\nb\nb\nb\nc\n", "a\nb × 3\nc\n"),
        ("b\nb\nc\nc\n", "b × 2\nc × 2\n"),
        ("a\n\n\n \n \nb\n", "a\n\n\n \n \nb\n"),
        ("\x1b[1mwa\x1b[0mrn\nwarn\nwa\x1b[31mrn\n\x1b[0m", "warn × 3\n"),
        ("a\na\nb\nb\n" * 100, "a\na\nb\nb\n" * 100),
    ],
    ids=["in the middle", "one after the other", "blank", "of other styles", "in very many places"],
)
def test_lines_that_repeat_are_folded_and_counted(written, seen):
    feed = LogFeed()
    write(feed, "chief:0", written)
    [chunk] = feed.take_out()["chunks"]
    assert plain(chunk["html"]) == seen
    assert chunk["lines"] == written.count("\n"), "how much there was is counted all the same"


def test_an_unfinished_line_is_sent_again_only_when_it_changes_and_one_stream_does_not_split_the_other_s():
    feed = LogFeed()
    write(feed, "chief:0", "10%")
    assert feed.take_out()["open"] == {"chief:0": "10%"}
    write(feed, "chief:0", "\r10%")
    assert feed.take_out() is None
    write(feed, "chief:0", "warning\n", "stderr")
    write(feed, "chief:0", "\r20%")
    batch = feed.take_out()
    assert (texts(batch), batch["open"]) == ([("chief:0", "warning\n")], {"chief:0": "20%"})
    write(feed, "chief:0", "\ndone\n")
    batch = feed.take_out()
    assert (texts(batch), batch["open"]) == ([("chief:0", "20%\ndone\n")], {"chief:0": ""})


@pytest.mark.parametrize("line", ["x", "x" * 5_000])
def test_of_a_flood_the_newest_lines_are_shown_the_rest_is_counted_and_others_are_heard(line):
    feed = LogFeed()
    lines = [f"{number:06d} {line}\n" for number in range(40_000)]
    pieces = ["".join(lines[start : start + 1000]) for start in range(0, len(lines), 1000)]
    quiet = LogText(time_s=0.0, node="worker:0", stream="stdout", text="quiet\n")
    feed.take_in_all([quiet, *(LogText(time_s=0.0, node="chief:0", stream="stdout", text=text) for text in pieces)])
    batch = feed.take_out()
    assert ("worker:0", "quiet\n") in texts(batch)
    [noisy] = [chunk for chunk in batch["chunks"] if chunk["node"] == "chief:0"]
    text = plain(noisy["html"])
    assert text.startswith(f"{40_000 - noisy['lines']:06d} "), "it begins with a whole line"
    assert text.endswith(lines[-1])
    assert text.count("\n") == noisy["lines"]
    assert noisy["note"] == f"{40_000 - noisy['lines']:,} lines dropped here"
    assert len(text) < 1_000_000


def test_a_page_that_loads_later_gets_the_last_lines_and_the_number_of_the_others():
    feed = LogFeed()
    for number in range(100):
        write(feed, "chief:0", f"{number}\n" * 100)
        feed.take_out()
    write(feed, "worker:0", "quiet\nopen")
    feed.take_out()
    history = feed.history()
    kept = sum(chunk["lines"] for chunk in history["chunks"])
    assert 1000 < kept < 10_000
    assert history["forgotten"] == {"chief:0": 10_001 - kept}
    assert texts(history)[-1] == ("worker:0", "quiet\n")
    assert history["open"]["worker:0"] == "open"
    assert history["seq"] == 101
