"""An interrupt ends the cell that it is meant for, and nothing else of the node."""

from __future__ import annotations

import signal
import threading

import pytest

from tfos_lab import messages as m
from tfos_lab.node.interactive.inbox import CellInbox


@pytest.fixture
def inbox():
    previous = signal.getsignal(signal.SIGINT)
    yield CellInbox()
    signal.signal(signal.SIGINT, previous)


def test_the_running_cell_is_interrupted(inbox):
    interrupting = threading.Thread(target=inbox.handle, args=[m.InterruptCell(cell=1)])
    with pytest.raises(KeyboardInterrupt), inbox.running(1):
        run_until_interrupted(interrupting)
    interrupting.join()


def run_until_interrupted(interrupting):
    interrupting.start()
    threading.Event().wait()


def test_a_cell_that_is_interrupted_before_it_begins_does_not_begin(inbox):
    inbox.handle(m.InterruptCell(cell=2))
    with inbox.running(1):
        pass
    with pytest.raises(KeyboardInterrupt), inbox.running(2):
        pytest.fail("it has begun")


def test_an_interrupt_that_comes_when_its_cell_has_just_ended_does_nothing(inbox):
    with inbox.running(1):
        pass
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), inbox.running(2):
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
