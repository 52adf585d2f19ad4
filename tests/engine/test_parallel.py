"""Independent runs: which wait, go on and have ended, and what they returned."""

from __future__ import annotations

import argparse
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfos_lab
from tfos_lab.engine.parallel.state import MOST_OVERTAKEN, ParallelState
from tfos_lab.errors import ConfigError, RunFailed


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


def test_a_lost_node_is_told_from_an_error():
    state = ParallelState(["a", "b"])
    state.failed(state.begin(1.0), failure("lost"), 2.0)
    state.failed(state.begin(1.0), failure("exited"), 2.0)
    assert states(state) == ["lost", "failed"]


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


def test_a_run_that_waits_for_another_try_has_failed_when_all_are_stopped(three):
    three.failed(three.begin(1.0), failure("lost"), 2.0)
    three.stop()
    assert states(three) == ["lost", "stopped", "stopped"]


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
    assert states(state) == ["done"] * len(slots)


# ---- what independent runs returned ---------------------------------------------------------------------------------


def act(args, ctx):
    if args == "raise":
        raise ValueError("no\nmore")
    return args


@pytest.fixture
def parallel(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))
    return lambda args, **options: tfos_lab.parallel(
        act, args, **{"local": "inline", "raise_failures": False, "show": False, **options}
    )


def test_results_stand_in_the_order_of_their_arguments_and_survive_pickling(parallel):
    results = parallel([0.5, "raise", 2])
    for found in (results, pickle.loads(pickle.dumps(results))):
        assert (len(found), found[0], found[-1], found[-3:1], found.done) == (3, 0.5, 2, [0.5], 2)
        assert (found[1].error, list(found.failures), found.states) == ("ValueError", [1], ["done", "failed", "done"])
    assert repr(results) == "0: 0.5\n1: failed ValueError: no\n2: 2"


def test_the_table_has_a_row_for_each_run_with_its_arguments_in_short(parallel):
    args = [{"lr": 0.1, "units": [64, 32]}, argparse.Namespace(lr=0.1), "raise", "x" * 200]
    table = parallel(args).table()
    assert list(table.columns) == ["run", "args", "state", "tries", "seconds", "error"]
    assert list(table["args"])[:2] == ["lr=0.1, units=[64, 32]", "lr=0.1"]
    assert max(map(len, table["args"])) <= 60
    assert list(table["error"]) == ["", "", "ValueError: no", ""]
    assert list(table["tries"]) == [1] * 4


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"slots": 5000}, r"slots=5000: this machine has room for \d+ runs at once: it has \d+ cores"),
        ({"gpus": 99}, "gpus=99: this machine has "),
        ({"slots": 1.5, "retries": True, "timeout_s": "1"}, "(?s)slots=1.5.*retries=True.*timeout_s='1'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_begins(parallel, options, problem):
    with pytest.raises(ConfigError, match=problem):
        parallel([1], local="processes", **options)
