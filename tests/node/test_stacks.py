"""Where a node is: asked of real children that sleep, wait, compute in C, are stopped, or do not take signals."""

import itertools
import os
import signal
import threading

import pytest

from tests.support.eventually import eventually
from tfos_lab.core import messages as m
from tfos_lab.core.messages import Condition

_requests = itertools.count(1)


def ask(node, patience_s=60.0):
    request = next(_requests)
    node.send(m.StacksWanted(request=request, patience_s=patience_s))
    return node.wait_for(m.Stacks, lambda stacks: stacks.request == request)


def until(node, is_there, **patience):
    """Ask until the answer is as it will be: a function has printed before it is where it stays."""

    def look():
        stacks = ask(node, **patience)
        assert is_there(stacks), stacks
        return stacks

    return eventually(look)


def sleep_for_ever():
    threading.Thread(target=threading.Event().wait, name="of the user", daemon=True).start()
    threading.Event().wait()


def hold_the_lock(args=None):
    if args == "deaf":
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM}:
            signal.signal(number, signal.SIG_DFL)
    os.write(1, b"there\n")
    sum(itertools.repeat(0))  # one call into C


def read_rows(args, ctx):
    ctx.data_feed().next_batch(1)


def wait_for_peers(args, ctx):
    ctx.wait_for_training(600)


def in_library(file):
    """Wait in a file of a library, called by the user's function, which has a function of its own called back."""
    names = {"wait": threading.Event().wait, "mine": sleep_for_ever}
    code = "def quick_execute(back):\n    mine() if back else wait()\n"
    exec(compile(code, file.removesuffix("!"), "exec"), names)
    names["quick_execute"](file.endswith("!"))


def test_a_child_that_sleeps_shows_where_with_all_its_threads_and_goes_on(run):
    node = run(sleep_for_ever)
    for _ in range(2):
        stacks = until(node, lambda stacks: "\n    threading.Event().wait()\n" in stacks.text)
        assert (stacks.condition, stacks.call) == (Condition.BUSY, "")
        assert stacks.place.startswith("node/test_stacks.py, line ")
        assert stacks.place.endswith(", in sleep_for_ever")
        assert stacks.text.startswith("main thread (most recent call last):\n  File ")
        assert "\n\nof the user (" in stacks.text
        assert "take_stacks" not in stacks.text
        assert "tfos-" not in stacks.text, "threads of our own tell nothing of the function"


EXECUTE = "/env/lib/python3.11/site-packages/tensorflow/python/eager/execute.py"


@pytest.mark.parametrize(
    ("map_fun", "args", "condition", "shown"),
    [
        (read_rows, None, Condition.WAITS_FOR_ROWS, ("read_rows", "next_batch (tfos_lab)")),
        (wait_for_peers, None, Condition.WAITS, ("wait_for_peers", "wait_for_training (tfos_lab)")),
        (in_library, EXECUTE, Condition.IN_TENSORFLOW, ("in_library", "quick_execute (tensorflow)")),
        (in_library, EXECUTE + "!", Condition.BUSY, ("sleep_for_ever", "")),
        (in_library, "/env/site-packages/numpy/linalg.py", Condition.BUSY, ("in_library", "quick_execute (numpy)")),
    ],
    ids=["rows", "peers", "TensorFlow", "the user's own within TensorFlow", "another library"],
)
def test_the_innermost_package_says_what_a_node_is_at(run, map_fun, args, condition, shown):
    def seen(stacks):
        return (stacks.condition, stacks.place.rpartition(" in ")[2], stacks.call)

    until(run(map_fun, args), lambda stacks: seen(stacks) == (condition, *shown))


def test_a_child_without_a_handler_is_not_ended_by_the_signal(run):
    node = run(hold_the_lock, "deaf")
    node.wait_for_output(b"there\n")
    stacks = until(node, lambda stacks: "has no handler for the signal" in stacks.text, patience_s=0.1)
    assert stacks.condition is Condition.LOCKED
    os.kill(node.pid, 0)
    assert not node.all(m.Ended)


def test_a_child_that_is_stopped_says_so_at_once(run):
    node = run(sleep_for_ever)
    os.kill(node.pid, signal.SIGSTOP)
    stacks = until(node, lambda stacks: stacks.condition is Condition.STOPPED)
    assert stacks.place == ""
    assert f"its process {node.pid} is stopped" in stacks.text
    os.kill(node.pid, signal.SIGCONT)
    until(node, lambda stacks: stacks.condition is Condition.BUSY)


def test_a_child_that_is_not_there_is_away(launch):
    stacks = ask(launch())
    assert (stacks.condition, stacks.text) == (Condition.AWAY, "it has no process now")
