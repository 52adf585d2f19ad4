"""Runs of styled text: what the dashboard, the saved output and plain lines are all made from."""

from __future__ import annotations

from collections.abc import Iterable

from tfos_lab.core.markup import Html, h, join

# Text, and the CSS classes of its style, separated by spaces.
Run = tuple[str, str]


def merge_runs(runs: Iterable[Run]) -> list[Run]:
    """Join neighbours of the same style, so that unstyled text is one run, however many pieces it came in."""
    merged: list[tuple[list[str], str]] = []
    for text, classes in runs:
        if merged and merged[-1][1] == classes:
            merged[-1][0].append(text)
        else:
            merged.append(([text], classes))
    return [("".join(texts), classes) for texts, classes in merged]


def last_lines(runs: list[Run], keep: int) -> list[Run]:
    """Return the last ``keep`` lines of finished lines."""
    kept: list[Run] = []
    wanted = keep + 1  # newlines to pass: the one that ends the last line, and one before each line that is kept
    for text, classes in reversed(runs):
        found = text.count("\n")
        if found < wanted:
            kept.append((text, classes))
            wanted -= found
            continue
        tail = "\n".join(text.split("\n")[-wanted:])
        if tail:
            kept.append((tail, classes))
        break
    return kept[::-1]


def count_lines(runs: Iterable[Run]) -> int:
    """Return how many newlines the runs hold."""
    return sum(text.count("\n") for text, _ in runs)


def plain_text(runs: Iterable[Run]) -> str:
    """Return the text without its styles."""
    return "".join(text for text, _ in runs)


def html_text(runs: Iterable[Run]) -> Html:
    """Return the text as HTML, with a span for each styled run."""
    return join(*(h("span", text, cls=classes) if classes else text for text, classes in runs))
