"""The messages and traits that kernel and page exchange; `dashboard` sends them, ``extensions/dashboard`` draws them.

``extensions/dashboard/src/messages.ts`` has the same types for the page. What the page receives is built as plain
dictionaries, which ipywidgets sends as they are; what it sends is decoded by msgspec, as anything may come.
"""

from __future__ import annotations

from typing import Literal, TypedDict

import msgspec

from tfos_lab.jupyter.display.log_feed import LogBatch, LogHistory

# MIME type → content, as in a notebook's output.
Bundle = dict[str, str]

# ---- kernel to page -------------------------------------------------------------------------------------------------


class LogMessage(LogBatch):
    """New log text."""

    kind: Literal["log"]


class HistoryMessage(LogHistory):
    """All remembered log text; ``page`` is the one that asked, or empty for all that missed the start."""

    kind: Literal["history"]
    page: str


class FileMessage(TypedDict):
    """A piece of a node's log file, which comes as a buffer; ``size`` is that of the whole file."""

    kind: Literal["file"]
    page: str
    node: str
    offset: int
    size: int


class PictureMessage(TypedDict):
    """What the document holds in place of the widget ``model`` while the run goes on."""

    kind: Literal["picture"]
    model: str
    bundle: Bundle


class EndMessage(TypedDict):
    """What replaces the widget ``model``, as the run has ended."""

    kind: Literal["end"]
    model: str
    bundle: Bundle


class StacksMessage(TypedDict):
    """Where the threads of a node were, as text; or why there is no telling."""

    kind: Literal["stacks"]
    node: str
    text: str
    time_s: float


PageMessage = LogMessage | HistoryMessage | FileMessage | StacksMessage | PictureMessage | EndMessage

# ---- page to kernel -------------------------------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, tag_field="kind", tag="hello"):
    """A page has loaded: it gets the history and the picture, or the end."""

    page: str


class Fetch(msgspec.Struct, frozen=True, tag_field="kind", tag="fetch"):
    """A page wants the piece of a node's log file that begins at ``offset``."""

    page: str
    node: str
    offset: int


class Stop(msgspec.Struct, frozen=True, tag_field="kind", tag="stop"):
    """Stop the cluster."""


class Stacks(msgspec.Struct, frozen=True, tag_field="kind", tag="stacks"):
    """Say where the threads of a node are."""

    node: str


class Open(msgspec.Struct, frozen=True, tag_field="kind", tag="open"):
    """List the first nodes of a group, or only count them."""

    group: str
    open: bool


class GroupBy(msgspec.Struct, frozen=True, tag_field="kind", tag="group_by"):
    """Group the nodes by something else."""

    grouping: str


KernelMessage = Hello | Fetch | Stop | Stacks | Open | GroupBy

# ---- traits: the state of the cluster -------------------------------------------------------------------------------


class Row(TypedDict):
    """One node that has a row. Its ``place`` stays when rows change their order: colours and tabs follow it."""

    node: str
    place: int
    state: str
    ended: bool


class View(TypedDict):
    """What the page goes by: the trait ``view``; ``hung`` has the nodes that give no sign."""

    id: str
    name: str
    state: str
    ended: bool
    spark_ui: str
    tensorboard: bool
    run_dir: str
    rows: list[Row]
    hung: list[str]


class Traits(TypedDict):
    """The widget's traits that the page reads.

    ``head``, ``course``, ``nodes``, ``charts`` and ``shown`` are parts of the card as HTML.
    """

    head: str
    course: str
    nodes: str
    charts: str
    shown: str
    view: View
    display_key: str
    blocking: bool
    kernel_id: str
