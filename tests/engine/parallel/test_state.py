"""Which independent runs wait, go on and have ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfos_lab.core.states import NodeState
from tfos_lab.engine.parallel.state import MOST_OVERTAKEN, ParallelState
from tfos_lab.errors import RunFailed


def failure(kind="raised"):
    return RunFailed(run=0, kind=kind, error="ValueError", message="no")


def states(state):
    return [entry.state.value for entry in state.entries]


@pytest.fixture
def three():
    return ParallelState(["a", "b", "c"], retries=1)


def test_runs_begin_in_order(three):
    assert [three.begin(1.0), three.begin(1.0)] == [0, 1]
    assert three.going == {0, 1}
    assert three.waiting == 1
    assert not three.over


def test_all_have_ended_when_none_waits_or_goes_on(three):
    for value in "xyz":
        three.returned(three.begin(1.0), value, 3.5)
    assert three.over
    assert [entry.value for entry in three.entries] == ["x", "y", "z"]
    assert [entry.seconds(9.0) for entry in three.entries] == [2.5, 2.5, 2.5]


def test_a_run_that_failed_is_tried_again_after_those_that_wait(three):
    three.failed(three.begin(1.0), failure(), 2.0)
    assert [three.begin(2.0) for _ in range(3)] == [1, 2, 0]
    assert three.entries[0].tries == 2


def test_after_all_its_tries_it_has_failed(three):
    for _ in range(4):
        index = three.begin(1.0)
        if index == 0:
            three.failed(0, failure(), 2.0)
        else:
            three.returned(index, None, 2.0)
    assert three.over
    assert states(three) == ["failed", "done", "done"]
    assert three.entries[0].failure.message == "no"


def test_a_lost_node_is_told_from_an_error():
    state = ParallelState(["a", "b"])
    state.failed(state.begin(1.0), failure("lost"), 2.0)
    state.failed(state.begin(1.0), failure("exited"), 2.0)
    assert states(state) == ["lost", "failed"]
    assert state.count(NodeState.FAILED, NodeState.LOST) == 2


def test_a_second_try_that_returns_leaves_no_failure(three):
    three.failed(three.begin(1.0), failure(), 2.0)
    three.begin(1.0), three.begin(1.0)
    three.returned(three.begin(3.0), "x", 4.0)
    assert three.entries[0].failure is None
    assert states(three)[0] == "done"


def test_a_try_without_a_slot_does_not_count(three):
    three.put_back(three.begin(1.0))
    assert three.entries[0].tries == 0
    assert three.begin(2.0) == 0


def test_a_stop_lets_none_begin(three):
    index = three.begin(1.0)
    three.stop()
    assert three.waiting == 0
    assert not three.over
    three.stopped(index, 2.0)
    assert three.over
    assert states(three) == ["stopped"] * 3


def test_after_a_stop_a_failure_is_the_last_one(three):
    index = three.begin(1.0)
    three.stop()
    three.failed(index, failure(), 2.0)
    assert three.over
    assert states(three) == ["failed", "stopped", "stopped"]


def test_a_run_that_waits_for_another_try_has_failed_when_all_are_stopped(three):
    three.failed(three.begin(1.0), failure("lost"), 2.0)
    three.stop()
    assert states(three) == ["lost", "stopped", "stopped"]


def test_a_try_that_found_no_slot_is_stopped_with_the_others(three):
    index = three.begin(1.0)
    three.stop()
    three.put_back(index)
    assert three.over
    assert states(three) == ["stopped"] * 3


def test_runs_that_can_never_begin_are_lost(three):
    index = three.begin(1.0)
    three.fail_waiting("the session has gone")
    three.returned(index, "x", 2.0)
    assert three.over
    assert states(three) == ["done", "lost", "lost"]
    assert three.entries[1].failure.summary == "lost: the session has gone"


# ---- runs of several slots ------------------------------------------------------------------------------------------


def sized(*slots):
    state = ParallelState([""] * len(slots))
    for entry, wanted in zip(state.entries, slots, strict=True):
        entry.slots = wanted
    return state


def test_runs_take_as_many_slots_as_they_need():
    state = sized(2, 1)
    assert (state.next_slots, state.taken) == (2, 0)
    state.begin(1.0)
    assert (state.next_slots, state.taken) == (1, 2)
    state.begin(1.0)
    assert (state.next_slots, state.taken) == (0, 3)


def test_a_run_that_does_not_fit_lets_smaller_ones_go_first():
    state = sized(3, 1, 2)
    assert state.fitting(2) == 1
    assert state.begin(1.0, 1) == 1
    assert state.fitting(1) is None
    assert state.fitting(3) == 0


def test_it_is_overtaken_a_few_times_only():
    state = sized(2, *[1] * (MOST_OVERTAKEN + 1))
    for _ in range(MOST_OVERTAKEN):
        state.begin(1.0, state.fitting(1))
    assert state.fitting(1) is None
    assert state.fitting(2) == 0


def test_a_run_may_be_cut():
    state = ParallelState(["a"], retries=1)
    state.failed(state.begin(1.0), failure(), 2.0)
    state.cut(state.begin(3.0), 4.0)
    assert state.over
    assert states(state) == ["stopped early"]
    assert state.entries[0].failure is None


@given(st.data(), st.lists(st.integers(1, 4), min_size=1, max_size=10), st.integers(4, 6))
def test_all_runs_end_within_the_slots(data, slots, total):
    """Whatever the sizes and the order in which runs end: never more than the slots, and none waits for ever."""
    state = sized(*slots)
    for _ in range(4 * len(slots)):
        while (index := state.fitting(total - state.taken)) is not None and total > state.taken:
            state.begin(1.0, index)
            assert state.taken <= total
        if state.over:
            break
        assert state.going, "something goes on while anything waits"
        state.returned(data.draw(st.sampled_from(sorted(state.going))), None, 2.0)
    assert state.over
    assert state.count(NodeState.DONE) == len(slots)
