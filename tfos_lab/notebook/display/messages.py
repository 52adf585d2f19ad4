"""The messages and traits that kernel and page exchange; `dashboard` sends them, ``extensions/dashboard`` draws them.

``extensions/dashboard/src/messages.ts`` has the same types for the page. What the page receives is built as plain
dictionaries, which ipywidgets sends as they are; what it sends is decoded by msgspec, as anything may come.
"""

from __future__ import annotations

from typing import Literal, TypedDict

import msgspec

from tfos_lab.notebook.display.log_feed import LogBatch, LogHistory

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


PageMessage = LogMessage | HistoryMessage | PictureMessage | EndMessage

# ---- page to kernel -------------------------------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, tag_field="kind", tag="hello"):
    """A page has loaded: it gets the history and the picture, or the end."""

    page: str


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


KernelMessage = Hello | Stop | Stacks | Open | GroupBy

# ---- traits: the state of the cluster -------------------------------------------------------------------------------


class Row(TypedDict):
    """One node that has a row. Its ``place`` stays when rows change their order: colours and tabs follow it.

    ``log`` is the path of its log below the Jupyter server's root, or "" where that does not serve it.
    """

    node: str
    place: int
    log: str
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

    ``head``, ``course``, ``nodes``, ``charts``, ``shown`` and ``stacks`` are parts of the card as HTML.
    """

    head: str
    course: str
    nodes: str
    charts: str
    shown: str
    stacks: str
    view: View
    display_key: str
    blocking: bool
    kernel_id: str
