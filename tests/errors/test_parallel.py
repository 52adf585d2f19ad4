"""What failed runs say."""

from __future__ import annotations

import pickle

from tfos_lab.errors import NotAllAtOnce, NotEnoughSlots, ParallelFailed, ParallelInterrupted, RunFailed

RAISED = RunFailed(
    run=3, kind="raised", argument="lr=0.1", error="ValueError", message="no\nmore", traceback="line 7\nValueError: no"
)
LOST = RunFailed(run=5, kind="lost", message="killed", log_tail="the last line", tries=3)


def test_a_failed_run_says_which_it_was_and_what_happened():
    assert str(RAISED) == "run 3 (lr=0.1): ValueError: no\n--- traceback of run 3 ---\nline 7\nValueError: no"
    assert str(LOST) == "run 5, after 3 tries: lost: killed\n--- last lines of run 5 ---\nthe last line"
    assert repr(LOST) == "<RunFailed 5: lost: killed>"


def test_failed_runs_are_told_apart():
    error = ParallelFailed(failures={3: RAISED, 5: LOST}, results=[None] * 6)
    assert str(error).splitlines()[:3] == [
        "2 of 6 runs failed (1 raised, 1 lost); .results has the values of the others",
        "  run 3 (lr=0.1): ValueError: no",
        "  run 5, after 3 tries: lost: killed",
    ]
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.failures[5].tries == 3


def test_many_failures_of_one_sort_show_one_traceback():
    failures = {
        run: RunFailed(run=run, kind="raised", error="E", message="m", traceback=f"of {run}") for run in range(30)
    }
    text = str(ParallelFailed(failures=failures, results=[None] * 30))
    assert "… and 18 more in .failures" in text
    assert text.count("--- traceback of") == 1
    assert "--- traceback of run 0 ---\nof 0" in text


def test_an_interrupt_keeps_the_results():
    error = ParallelInterrupted("search", [1, None], 1)
    assert str(error).startswith("interrupted: the runs of 'search' are stopped; 1 of 2 had returned")
    assert isinstance(error, KeyboardInterrupt)
    assert error.results == [1, None]


def test_too_few_slots_for_all_at_once():
    error = NotAllAtOnce(wanted=4, free=2, total=3)
    assert isinstance(error, NotEnoughSlots)
    assert str(error).startswith(
        "4 instances are to run at once (use_barrier=True), but there are 2 free task slots of 3"
    )
    assert "Ask for 2, add executors or cores, or give use_barrier=False" in str(error)
