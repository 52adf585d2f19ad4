"""How a fault is declared: once, with what a user sees and the words of its row in docs/when-something-fails.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfos_lab.errors import NodeFailed

# The back ends: nodes are processes of this machine, without Spark or beside a local session; or Spark's tasks.
HERE, LOCAL, STANDALONE, CONNECT = "here", "local", "standalone", "connect"


@dataclass(frozen=True)
class Sees:
    """What a user sees: an error, or the results as if nothing had been; and perhaps a note in the cell.

    Parts of words are separated by "…", as in the documents, and have to come in this order.
    """

    error: Any = None
    node: str = ""
    kind: str = ""
    words: str = ""
    note: str = ""
    then: str = ""  # what `wait` raises, when another call has raised the error
    results: Mapping[str, Any] | None = None

    def check(self, error):
        """See that an error is the one."""
        if self.node:
            assert error.node == self.node, error
        if self.kind:
            assert error.kind == self.kind, error
        assert_words(self.words, str(error))


def assert_words(words, text):
    """See that parts of a sentence come in this order."""
    rest = text
    for part in filter(None, map(str.strip, words.split("…"))):
        _, found, rest = rest.partition(part)
        assert found, f"no {part!r} in {text!r}"


def fails(node, kind, words="", *, note=""):
    """Say that a node is named as the cause."""
    return Sees(NodeFailed, node, kind, words, note)


def raises(error, words="", *, then=""):
    """Say that there is an error, or one of some."""
    return Sees(error, words=words, then=then)


def goes_on(results, *, note=""):
    """Say that the results are as usual."""
    return Sees(results=results, note=note)


@dataclass(frozen=True)
class Fault:
    """A fault that is done; `do` starts the cluster of a `tests.faults.scene.Scene`, and does it."""

    name: str
    do: Callable[[Any], Any]
    sees: Sees
    on: tuple[str, ...]
    tensorflow: bool
    chaos: Callable[[Any], Any] | None
    chaos_options: Mapping[str, Any]


@dataclass
class Table:
    """A table of the page: its heading, its columns and its rows."""

    heading: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def text(self):
        """Return the table as the page has it."""
        lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in (self.columns, *self.rows)]
        return "\n".join([lines[0], "|---" * len(self.columns) + "|", *lines[1:]])


FAULTS: list[Fault] = []
TABLES: list[Table] = []


def heading(text, *columns):
    """Begin a table of the page; the faults below it are its rows."""
    TABLES.append(Table(text, (*columns, "test")))


def _row(name, page, test):
    row = (name, *(cell.strip() for cell in page.split(" | ")), f"`{test}`")
    assert len(row) == len(TABLES[-1].columns), row
    TABLES[-1].rows.append(row)


def fault(name, sees, *, on=(HERE,), page="", tensorflow=False, chaos=None, chaos_options=None):
    """Declare the function below as a fault.

    ``on`` are the back ends, and ``page`` is the row of the page: what you see, and so on, divided by " | ".
    ``tensorflow`` says whether nodes need a real one. ``chaos`` is how a soak does it to a cluster that runs, at any
    moment (True: as the test), whose round has to be made with ``chaos_options``.
    """

    def declare(do):
        FAULTS.append(Fault(name, do, sees, on, tensorflow, do if chaos is True else chaos, chaos_options or {}))
        if page:
            _row(name, page, f"tests/faults/table.py::{do.__name__}")
        return do

    return declare


def elsewhere(*rows):
    """Declare faults that have a test of their own, named at the end of the row of the page."""
    for row in rows:
        name, _, rest = row.partition(" | ")
        page, _, test = rest.rpartition(" | ")
        _row(name, page, test)
