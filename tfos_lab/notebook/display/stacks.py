"""Where the threads of nodes are, for the page that asks and for the saved output."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from tfos_lab.core.markup import Html, h, join

# A page gets an answer in this time, whatever the node does.
PATIENCE_S = 5.0


class NodeStacks(NamedTuple):
    """The stacks of a node as ``text``, or why there are none; ``time_s`` is seconds since the epoch."""

    node: str
    text: str
    time_s: float


@runtime_checkable
class StacksSource(Protocol):
    """A cluster that can tell where the threads of its nodes are; independent runs cannot."""

    def stacks(self, node: str | None = None, *, timeout: float = ...) -> dict[str, str]:
        """Return the stacks of a node, by its name."""


class StacksReader:
    """Asks nodes for their stacks, each on a thread of its own, and keeps the last answers.

    Parameters
    ----------
    cluster : object
        The cluster to ask, if it is a `StacksSource`.
    """

    def __init__(self, cluster: object) -> None:
        self._source = cluster if isinstance(cluster, StacksSource) else None
        self._answers: dict[str, NodeStacks] = {}
        self._asking: dict[str, threading.Thread] = {}

    @property
    def can_ask(self) -> bool:
        """Whether nodes can be asked at all."""
        return self._source is not None

    @property
    def answers(self) -> list[NodeStacks]:
        """The last answer of each node that was asked."""
        return list(self._answers.values())

    def ask(self, node: str) -> None:
        """Ask a node, unless it is being asked."""
        before = self._asking.get(node)
        if self._source is not None and (before is None or not before.is_alive()):
            arguments = (self._source, node)
            self._asking[node] = threading.Thread(target=self._ask, args=arguments, name="tfos-stacks", daemon=True)
            self._asking[node].start()

    def close(self) -> None:
        """Wait for answers that are on their way, for a short time."""
        for thread in list(self._asking.values()):
            thread.join(timeout=1.0)

    def _ask(self, source: StacksSource, node: str) -> None:
        try:
            text = source.stacks(node, timeout=PATIENCE_S).get(node, "")
        except Exception as error:  # noqa: BLE001 - the page waits for whatever it is
            text = str(error)
        self._answers[node] = NodeStacks(node, text or "The node has not answered.", time.time())


def render_stacks(stacks: Sequence[NodeStacks]) -> Html:
    """Return the stacks of nodes as HTML to unfold."""
    return join(*map(_answer, stacks))


def _answer(one: NodeStacks) -> Html:
    text = h("pre", one.text, cls="tfos-log", tabindex=0)
    told = {"cls": "tfos-stacks", "data_key": one.node, "data_time": one.time_s}
    return h("details", h("summary", title_of(one)), text, **told)


def title_of(stacks: NodeStacks) -> str:
    """Return such as ``"Stacks of worker:1 at 12:04:55"``."""
    return f"Stacks of {stacks.node} at {time.strftime('%H:%M:%S', time.localtime(stacks.time_s))}"
