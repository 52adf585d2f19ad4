"""Stacks of nodes: asked for without blocking, kept, and told whatever happens."""

from __future__ import annotations

import queue

from tfos_lab.jupyter.display.stacks import NodeStacks, StacksReader, render_stacks


class Source:
    def __init__(self, answer: dict[str, str] | Exception) -> None:
        self._answer = answer

    def stacks(self, node: str | None = None, timeout_s: float = 5.0) -> dict[str, str]:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def asked(source: object) -> tuple[NodeStacks, StacksReader]:
    told: queue.Queue[NodeStacks] = queue.Queue()
    reader = StacksReader(source, told.put)
    reader.ask("worker:1")
    answer = told.get(timeout=60)
    reader.close()
    return answer, reader


def test_an_answer_is_told_and_kept() -> None:
    answer, reader = asked(Source({"worker:1": "in map_fun"}))
    assert (answer.node, answer.text) == ("worker:1", "in map_fun")
    assert reader.answers == [answer]


def test_what_goes_wrong_is_the_answer() -> None:
    assert asked(Source({}))[0].text == "The node has not answered."
    assert asked(Source(RuntimeError("the cluster has ended")))[0].text == "the cluster has ended"


def test_what_cannot_be_asked_is_not() -> None:
    reader = StacksReader(object(), lambda _: None)
    reader.ask("run 1")
    assert (reader.can_ask, reader.answers) == (False, [])


def test_text_cannot_become_markup() -> None:
    drawn = render_stacks([NodeStacks("worker:1", "<lambda> in <module>", 0.0)])
    assert "&lt;lambda&gt;" in drawn
    assert "Stacks of worker:1 at " in drawn
