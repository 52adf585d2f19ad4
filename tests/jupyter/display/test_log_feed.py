"""Log text for the browser: in order, bounded, and with a count of what is missing."""

from __future__ import annotations

import pytest

from tfos_lab.engine.state.events import LogText, StateChanged
from tfos_lab.jupyter.display import log_feed
from tfos_lab.jupyter.display.log_feed import LogFeed
from tfos_lab.jupyter.display.runs import plain_text


def write(feed: LogFeed, node: str, text: str, stream: str = "stdout") -> None:
    feed.take_in(LogText(time_s=0.0, node=node, stream=stream, text=text))


def texts(batch) -> list[tuple[str, str]]:
    return [(chunk["node"], plain_text(chunk["runs"])) for chunk in batch["chunks"]]


def test_without_news_there_is_no_batch() -> None:
    feed = LogFeed()
    assert feed.take_out() is None
    feed.take_in(StateChanged(time_s=0.0, state="running"))
    assert feed.take_out() is None
    write(feed, "worker:0", "x\n")
    assert feed.take_out() is not None
    assert feed.take_out() is None


def test_lines_keep_their_order_and_neighbours_are_joined() -> None:
    feed = LogFeed()
    write(feed, "chief:0", "a\nb\n")
    write(feed, "chief:0", "c\n")
    write(feed, "worker:0", "d\n")
    write(feed, "chief:0", "e\n")
    batch = feed.take_out()
    assert texts(batch) == [("chief:0", "a\nb\nc\n"), ("worker:0", "d\n"), ("chief:0", "e\n")]
    assert [chunk["lines"] for chunk in batch["chunks"]] == [3, 1, 1]
    assert len(batch["chunks"][0]["runs"]) == 1
    assert batch["seq"] == 1


def test_a_batch_of_many_pieces_is_sorted_by_node() -> None:
    feed = LogFeed()
    for number in range(100):
        write(feed, "chief:0", f"{number}\n")
        write(feed, "worker:0", f"{number}\n")
    whole = "".join(f"{number}\n" for number in range(100))
    assert texts(feed.take_out()) == [("chief:0", whole), ("worker:0", whole)]


def test_an_unfinished_line_is_sent_again_only_when_it_changes() -> None:
    feed = LogFeed()
    write(feed, "chief:0", "10%")
    assert feed.take_out()["open"] == {"chief:0": [("10%", "")]}
    write(feed, "chief:0", "\r10%")
    assert feed.take_out() is None
    write(feed, "chief:0", "\r20%")
    assert feed.take_out()["open"] == {"chief:0": [("20%", "")]}
    write(feed, "chief:0", "\ndone\n")
    batch = feed.take_out()
    assert batch["open"] == {"chief:0": []}
    assert texts(batch) == [("chief:0", "20%\ndone\n")]


def test_one_stream_does_not_split_the_other_s_line() -> None:
    feed = LogFeed()
    write(feed, "chief:0", "progress 10%", "stdout")
    write(feed, "chief:0", "warning\n", "stderr")
    batch = feed.take_out()
    assert texts(batch) == [("chief:0", "warning\n")]
    assert batch["open"] == {"chief:0": [("progress 10%", "")]}


def test_too_much_of_one_node_drops_its_oldest_lines_and_counts_them() -> None:
    feed = LogFeed()
    write(feed, "worker:0", "quiet\n")
    for number in range(30):
        write(feed, "chief:0", "".join(f"{number}.{line}\n" for line in range(100)))
    batch = feed.take_out()
    noisy = next(chunk for chunk in batch["chunks"] if chunk["node"] == "chief:0")
    assert ("worker:0", "quiet\n") in texts(batch)
    assert noisy["lines"] == log_feed.MAX_NODE_LINES
    assert noisy["note"] == "1,000 lines dropped here"
    assert plain_text(noisy["runs"]).startswith("10.0\n")
    assert plain_text(noisy["runs"]).endswith("29.99\n")


@pytest.mark.parametrize("line", ["x", "x" * 5_000])
def test_one_huge_piece_is_cut_to_the_bounds(line: str) -> None:
    feed = LogFeed()
    write(feed, "chief:0", f"{line}\n" * 50_000)
    [chunk] = feed.take_out()["chunks"]
    text = plain_text(chunk["runs"])
    assert len(text) <= log_feed.MAX_CHARS // 4 + 5_000
    assert text.count("\n") == chunk["lines"] <= log_feed.MAX_NODE_LINES
    assert chunk["note"] == f"{50_000 - chunk['lines']:,} lines dropped here"


def test_events_that_the_bus_dropped_are_counted() -> None:
    feed = LogFeed()
    feed.add_dropped(1234)
    assert feed.take_out() is None
    write(feed, "chief:0", "after\n")
    assert feed.take_out()["chunks"][0]["note"] == "1,234 pieces of text dropped here"
    write(feed, "chief:0", "later\n")
    assert feed.take_out()["chunks"][0]["note"] == ""


def test_a_page_that_loads_later_gets_the_last_lines_and_the_number_of_the_others() -> None:
    feed = LogFeed()
    for number in range(100):
        write(feed, "chief:0", f"{number}\n" * 100)
        feed.take_out()
    write(feed, "worker:0", "quiet\nopen")
    feed.take_out()
    history = feed.history()
    kept = sum(chunk["lines"] for chunk in history["chunks"])
    assert kept <= log_feed.HISTORY_LINES
    assert history["forgotten"] == {"chief:0": 10_001 - kept}
    assert texts(history)[-1] == ("worker:0", "quiet\n")
    assert history["open"]["worker:0"] == [("open", "")]
    assert history["seq"] == 101


def test_of_a_flood_only_the_newest_text_is_rendered_and_the_rest_is_counted() -> None:
    feed = LogFeed()
    lines = [f"line {number:06d} \x1b[31mred\x1b[0m\n" for number in range(100_000)]
    pieces = ["".join(lines[start : start + 1000]) for start in range(0, len(lines), 1000)]
    quiet = LogText(time_s=0.0, node="worker:0", stream="stdout", text="quiet\n")
    feed.take_in_all([quiet, *(LogText(time_s=0.0, node="chief:0", stream="stdout", text=text) for text in pieces)])
    batch = feed.take_out()
    [noisy] = [chunk for chunk in batch["chunks"] if chunk["node"] == "chief:0"]
    assert plain_text(noisy["runs"]).endswith("line 099999 red\n")
    assert plain_text(noisy["runs"]).startswith("line "), "it begins with a whole line"
    assert noisy["note"] == f"{100_000 - noisy['lines']:,} lines dropped here"
    assert ("worker:0", "quiet\n") in texts(batch)


def test_a_line_of_a_hundred_megabytes_costs_no_more_than_its_beginning() -> None:
    feed = LogFeed()
    for _ in range(100):
        feed.take_in_all([LogText(time_s=0.0, node="chief:0", stream="stdout", text="z" * 1_000_000)])
        batch = feed.take_out()
        assert batch is None or sum(len(text) for runs in batch["open"].values() for text, _ in runs) < 20_000
    feed.take_in_all([LogText(time_s=0.0, node="chief:0", stream="stdout", text="\nnext\n")])
    assert texts(feed.take_out())[-1][1].endswith("next\n")


def test_skipped_lines_are_reported_with_the_next_shown_one() -> None:
    feed = LogFeed()
    text = "x\n" * log_feed.MAX_READ + "y" * log_feed.MAX_READ
    feed.take_in_all([LogText(time_s=0.0, node="chief:0", stream="stdout", text=text)])
    feed.take_out()
    write(feed, "chief:0", "\nz\n")
    assert feed.take_out()["chunks"][0]["note"] == f"{log_feed.MAX_READ:,} lines dropped here"
