"""Writes the tables of docs/when-something-fails.md from the table of faults: ``python -m tests.faults.write``.

The page's other words, and what the doctor finds, are written by hand.
"""

import re

from tests.faults import table  # noqa: F401 - its rows
from tests.faults.declare import TABLES
from tests.faults.scene import ROOT

PAGE = ROOT / "docs" / "when-something-fails.md"


def page():
    """Return the page with the tables of today."""
    text = PAGE.read_text()
    for one in TABLES:
        before, heading, rest = text.partition(f"## {one.heading}\n\n")
        text = before + heading + one.text() + re.sub(r"\A(\|.*\n)+", "\n", rest)
    return text


def citations():
    """Return the file and the name of the test of each row."""
    return [tuple(row[-1].strip("`").split("::")) for one in TABLES for row in one.rows]


def is_there(path, test):
    """Whether a file has a test, or the table a fault, of this name."""
    return (ROOT / path).exists() and f"def {test}(" in (ROOT / path).read_text()


if __name__ == "__main__":
    PAGE.write_text(page())
