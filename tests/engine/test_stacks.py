"""The driver's part of stacks: who is asked, what comes back in time, and what is said of the rest."""

from __future__ import annotations

import threading

import pytest

from tfos_lab import messages as m
from tfos_lab.engine.stacks import StackAnswers
from tfos_lab.engine.state.events import NodeView
from tfos_lab.messages import Condition


def view(node, state="running"):
    job, _, index = node.partition(":")
    return NodeView(node, job, int(index), is_chief=job == "chief", state=state)


class Nodes:
    """Agents that answer at once, unless they are silent."""

    def __init__(self, *, silent=(), condition=Condition.BUSY):
        self.silent, self.condition, self.asked = silent, condition, []
        self.over = threading.Event()
        self.answers = StackAnswers(self.request, self.over)

    def request(self, change):
        for send in change(0.0):
            self.asked.append(send.rank)
            if send.rank not in self.silent:
                self.answers.take(m.Stacks(send.rank, send.message.request, self.condition, f"text {send.rank}\nmore"))


def test_all_nodes_that_have_a_process_are_asked():
    nodes = Nodes()
    views = [view("chief:0"), view("worker:0", "done"), view("worker:1", "waiting"), view("worker:2")]
    assert nodes.answers.of(views, None, 5.0) == {
        "chief:0": "text 0\nmore",
        "worker:0": "it has no process: its state is done",
        "worker:1": "it has no process: its state is waiting",
        "worker:2": "text 3\nmore",
    }
    assert sorted(nodes.asked) == [0, 3]


def test_one_node_can_be_asked():
    nodes = Nodes()
    assert nodes.answers.of([view("chief:0"), view("worker:0")], "worker:0", 5.0) == {"worker:0": "text 1\nmore"}
    assert nodes.asked == [1]


def test_a_node_that_is_not_there_is_told():
    with pytest.raises(KeyError, match="no node 'ps:0' in this cluster; there are chief:0"):
        Nodes().answers.of([view("chief:0")], "ps:0", 5.0)


def test_an_agent_that_does_not_answer_is_waited_for_only_so_long():
    nodes = Nodes(silent={1})
    stacks = nodes.answers.of([view("chief:0"), view("worker:0")], None, 0.05)
    assert stacks["chief:0"] == "text 0\nmore"
    assert stacks["worker:0"].startswith("its agent has not answered within 0.")


def test_nobody_waits_when_the_nodes_have_gone():
    nodes = Nodes(silent={0})
    nodes.over.set()
    assert "has not answered" in nodes.answers.of([view("chief:0")], None, 60.0)["chief:0"]


@pytest.mark.parametrize(("condition", "why"), [(Condition.STOPPED, "text 0"), (Condition.BUSY, "")])
def test_a_process_that_does_not_answer_says_why(condition, why):
    assert Nodes(condition=condition).answers.why_deaf(0) == why


def test_late_answers_are_dropped():
    Nodes().answers.take(m.Stacks(0, 99, Condition.BUSY, "late"))
