"""Stacks of real children: one that sleeps, one that holds the interpreter's lock, one that is stopped."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from tests.node.conftest import PATIENCE_S
from tfos_lab import messages as m
from tfos_lab.messages import Condition
from tfos_lab.node.stacks.agent import StackTaker
from tfos_lab.node.stacks.dump import SIGNAL, dump_path


class Asked:
    """A child, and the agent's part that asks it; the test is the agent's poll loop."""

    def __init__(self, child, scratch):
        self._child, self._answers = child, []
        child.signal(0)  # reads the pid
        supervisor = SimpleNamespace(pid=child.link.pid, send=child.link.send)
        self.taker = StackTaker(0, scratch, supervisor, self._answers.append)

    def ask(self, patience_s=PATIENCE_S):
        self.taker.handle(m.StacksWanted(request=1, patience_s=patience_s))
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers and time.monotonic() < deadline:
            for frame in self._child.link.control.available(0.02):
                message = m.decode_from_agent(frame.data)
                if isinstance(message, m.Stacks):
                    self.taker.answer(message)
            self.taker.tick(time.monotonic())
        return self._answers.pop()

    def until(self, is_there, **patience):
        """Ask until the answer is as it will be: a function has printed before it is where it stays."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_there(stacks := self.ask(**patience)):
            assert time.monotonic() < deadline, stacks.text
        return stacks


@pytest.fixture
def running(start_child, tmp_path):
    """A function that starts a child and returns it, with what asks it, once it is where the function has printed."""
    with ExitStack() as stack:

        def running(map_fun, args=None):
            child = start_child(map_fun, args)
            child.wait_for_output(b"there\n")
            stack.callback(child.signal, signal.SIGKILL)
            asked = Asked(child, tmp_path)
            return SimpleNamespace(child=child, ask=asked.ask, until=asked.until)

        yield running


def sleep_for_ever():
    threading.Thread(target=threading.Event().wait, name="of the user", daemon=True).start()
    os.write(1, b"there\n")
    threading.Event().wait()


def hold_the_lock():
    os.write(1, b"there\n")
    sum(itertools.repeat(0))  # one call into C


def test_a_child_that_sleeps_tells_where_and_goes_on(running):
    node = running(sleep_for_ever)
    for _ in range(2):
        stacks = node.until(lambda stacks: "\n    threading.Event().wait()\n" in stacks.text)
        assert (stacks.rank, stacks.request, stacks.condition) == (0, 1, Condition.BUSY)
        assert stacks.place.startswith("stacks/test_stacks.py, line ")
        assert stacks.place.endswith(", in sleep_for_ever")
        assert stacks.text.startswith("main thread (most recent call last):\n  File ")
        assert "\n\nof the user (" in stacks.text
        assert "take_stacks" not in stacks.text


def is_in_the_call(stacks):
    shows_it = "main thread" in stacks.text and "sum(itertools.repeat(0))" in stacks.text
    return stacks.condition is Condition.LOCKED and shows_it


def test_a_child_that_holds_the_interpreter_s_lock_is_asked_with_a_signal(running):
    node = running(hold_the_lock)
    for _ in range(2):
        stacks = node.until(is_in_the_call, patience_s=0.3)
        assert stacks.place.endswith(", in hold_the_lock")
        assert "has not answered for 0.3 s" in stacks.text
        assert "main thread (most recent call last):\n  File " in stacks.text
        assert "sum(itertools.repeat(0))" in stacks.text


def test_a_child_that_is_stopped_says_so_at_once(running):
    node = running(sleep_for_ever)
    node.child.signal(signal.SIGSTOP)
    stacks = node.until(lambda stacks: stacks.condition is Condition.STOPPED)
    assert stacks.place == ""
    assert f"its process {node.child.link.pid} is stopped" in stacks.text
    node.child.signal(signal.SIGCONT)
    node.until(lambda stacks: stacks.condition is Condition.BUSY)


@pytest.fixture
def half_a_dump(tmp_path):
    """A process, this one, that has been asked with a signal and has written a part of its stack, so far."""
    answers = []
    before = signal.signal(SIGNAL, lambda *_: None)
    try:
        file = dump_path(tmp_path)
        file.touch()
        taker = StackTaker(0, tmp_path, SimpleNamespace(pid=os.getpid(), send=lambda _: None), answers.append)
        taker.handle(m.StacksWanted(request=1, patience_s=0.0))
        begun_s = time.monotonic()
        taker.tick(begun_s)
        file.write_text('Stack (most recent call first):\n  File "a.py", line 7 in inner\n')
        yield SimpleNamespace(answers=answers, file=file, tick=lambda after_s: taker.tick(begun_s + after_s))
    finally:
        signal.signal(SIGNAL, before)


@pytest.mark.parametrize(
    "rest",
    [
        '  File "a.py", line 9 in <module>\n',
        '  File "threading.py", line 9 in _bootstrap_inner\n  File "threading.py", line 8 in _bootstrap\n',
        "  ...\n",
        '  File "a.py", line 7 in inner\n' * 99,
    ],
    ids=["main thread", "another thread", "cut off", "cut off without a mark"],
)
def test_a_process_that_is_interrupted_while_it_writes_its_stack_is_waited_for(half_a_dump, rest):
    half_a_dump.tick(0.1)
    half_a_dump.tick(0.3)
    assert half_a_dump.answers == []
    with half_a_dump.file.open("a") as file:
        file.write(rest)
    half_a_dump.tick(0.4)
    assert half_a_dump.answers == []
    half_a_dump.tick(0.5)
    assert [answer.place for answer in half_a_dump.answers] == ["a.py, line 7, in inner"]


def test_a_stack_that_ends_like_no_other_is_told_in_the_end(half_a_dump):
    half_a_dump.tick(0.1)
    half_a_dump.tick(0.9)
    assert half_a_dump.answers == []
    half_a_dump.tick(1.1)
    assert [answer.place for answer in half_a_dump.answers] == ["a.py, line 7, in inner"]


def test_a_child_that_is_not_there_is_away(tmp_path):
    answers = []
    taker = StackTaker(3, tmp_path, SimpleNamespace(pid=0), answers.append)
    taker.handle(m.StacksWanted(request=7))
    taker.handle(m.FeedsEnded())
    assert answers == [m.Stacks(3, 7, Condition.AWAY, "it has no process now")]


def test_a_process_without_a_handler_is_not_ended_by_the_signal(tmp_path):
    answers = []
    with ExitStack() as stack:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(7)
        stack.callback(os.close, reading)
        taker = StackTaker(0, tmp_path, SimpleNamespace(pid=pid, send=lambda _: None), answers.append)
        taker.handle(m.StacksWanted(request=1, patience_s=0.0))
        taker.tick(time.monotonic())
        os.close(writing)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert answers[0].condition is Condition.LOCKED
