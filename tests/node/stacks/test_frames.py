"""What a stack says about its thread."""

from __future__ import annotations

import pytest

import tfos_lab
from tfos_lab.messages import Condition
from tfos_lab.node.stacks.dump import stacks_in
from tfos_lab.node.stacks.frames import Place, call_of, condition_of, own_part, place_of

OWN = tfos_lab.__path__[0]
PACKAGES = "/env/lib/python3.11/site-packages"
ENTRY = Place(f"{OWN}/node/invoke.py", 40, "call_map_fun")
USER = Place("/home/me/train.py", 7, "train")
KERAS = Place(f"{PACKAGES}/keras/src/trainers/trainer.py", 300, "fit")
EXECUTE = Place(f"{PACKAGES}/tensorflow/python/eager/execute.py", 53, "quick_execute")
SCRIPT_OPS = Place(f"{PACKAGES}/tensorflow/python/ops/script_ops.py", 145, "_call")
WAIT = Place(f"{__import__('sysconfig').get_path('stdlib')}/threading.py", 320, "wait")
FEED = Place(f"{OWN}/node/feed/feed_queue.py", 91, "take")
FINISH = Place(f"{OWN}/node/context/context.py", 182, "_serve")
NUMPY = Place(f"{PACKAGES}/numpy/linalg/linalg.py", 9, "svd")


@pytest.mark.parametrize(
    ("stack", "condition"),
    [
        ([USER], Condition.BUSY),
        ([USER, NUMPY], Condition.BUSY),
        ([USER, WAIT], Condition.BUSY),
        ([USER, KERAS, EXECUTE], Condition.IN_TENSORFLOW),
        ([USER, KERAS, WAIT], Condition.IN_TENSORFLOW),
        ([USER, KERAS, USER], Condition.BUSY),
        ([USER, FEED, WAIT], Condition.WAITS_FOR_ROWS),
        ([USER, FINISH, WAIT], Condition.WAITS),
    ],
)
def test_the_innermost_package_says_what_a_node_is_at(stack, condition):
    assert condition_of([FINISH, ENTRY, *stack])[0] is condition


@pytest.mark.parametrize(
    ("called", "condition"),
    [([USER], Condition.BUSY), ([FEED, WAIT], Condition.WAITS_FOR_ROWS), ([], Condition.IN_TENSORFLOW)],
)
def test_a_main_thread_in_tensorflow_may_wait_for_a_function_that_tensorflow_has_called(called, condition):
    others = [[FINISH, WAIT], [SCRIPT_OPS, *called]]
    found, stack = condition_of([ENTRY, USER, EXECUTE], others)
    assert (found, list(stack)) == (condition, called or [USER, EXECUTE])


def test_a_stack_begins_with_the_user_s_function():
    assert own_part([FINISH, ENTRY, USER, KERAS]) == [USER, KERAS]
    assert own_part([USER, KERAS]) == [USER, KERAS]


def test_a_place_is_the_user_s_line_and_the_call_what_that_has_called():
    stack = [USER, KERAS._replace(function="error_handler"), KERAS, EXECUTE]
    assert (place_of(stack), call_of(stack)) == ("me/train.py, line 7, in train", "fit (keras)")
    assert (place_of([USER]), call_of([USER])) == ("me/train.py, line 7, in train", "")
    assert call_of([USER, WAIT]) == ""
    assert (place_of([]), call_of([])) == ("", "")


def test_a_dump_is_read_with_the_thread_first_that_took_the_signal():
    dump = (
        'Thread 0x1 (most recent call first):\n  File "/a/b.py", line 3 in inner\n  File "/a/b.py", line 9 in outer\n\n'
        'Current thread 0x2 (most recent call first):\n  File "/c.py", line 1 in <module>\n'
    )
    outer, inner = Place("/a/b.py", 9, "outer"), Place("/a/b.py", 3, "inner")
    assert stacks_in(dump) == [[Place("/c.py", 1, "<module>")], [outer, inner]]
    assert stacks_in("") == []
