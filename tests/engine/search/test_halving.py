"""Which trials successive halving cuts, at which rung."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfos_lab.engine.search.halving import Halving


def test_a_trial_alone_goes_on():
    halving = Halving(9)
    assert not any(halving.report(0, step, None, 1.0) for step in range(1, 30))


def test_the_worse_of_two_is_cut_at_the_first_rung_that_both_have_reached():
    halving = Halving(9)
    assert not halving.report(0, 1, None, 1.0)
    assert halving.report(1, 1, None, 2.0)


def test_a_better_one_that_comes_later_cuts_the_one_before_at_its_next_report():
    halving = Halving(9)
    assert not halving.report(0, 1, None, 2.0)
    assert not halving.report(1, 1, None, 1.0)
    assert halving.report(0, 2, None, 2.0)


def test_equal_ones_go_on():
    halving = Halving(9)
    assert not any(halving.report(trial, 1, None, 1.0) for trial in range(9))


def test_one_of_three_goes_on():
    halving = Halving(9)
    assert [halving.report(trial, 1, None, float(trial)) for trial in range(4)] == [False, True, True, True]
    assert not halving.report(4, 1, None, 0.5), "two of five"


def test_the_first_rung_may_be_later():
    halving = Halving(9, min_steps=10)
    assert not halving.report(0, 9, None, 1.0)
    assert not halving.report(1, 9, None, 2.0)
    assert not halving.report(0, 10, None, 1.0)
    assert halving.report(1, 10, None, 2.0)


def test_rungs_are_at_parts_of_the_steps_that_are_known():
    halving = Halving(9)  # rungs at 1/9 and 1/3 of the steps
    assert not halving.report(0, 100, 900, 1.0)
    assert not halving.report(1, 9, 90, 1.0)
    assert halving.report(1, 10, 90, 2.0), "a ninth of fewer steps"


def test_a_report_may_pass_several_rungs():
    halving = Halving(27)
    assert not halving.report(0, 9, None, 1.0)
    assert halving.report(1, 3, None, 2.0)


def test_a_trial_that_begins_anew_is_judged_anew():
    halving = Halving(9)
    assert not halving.report(0, 1, None, 1.0)
    halving.forget(0)
    assert halving.report(0, 1, None, 5.0)


BADNESS = st.floats(allow_nan=False, allow_infinity=True)


@given(st.data(), st.integers(2, 12), st.integers(2, 4), st.booleans())
def test_the_best_at_the_furthest_rung_is_never_cut(data, trials, reduction, known):
    """Whatever the order of reports: some trial goes on, and it was best where it was last compared."""
    halving = Halving(trials, reduction)
    going, steps, best = set(range(trials)), dict.fromkeys(range(trials), 0), dict.fromkeys(range(trials), float("inf"))
    for _ in range(data.draw(st.integers(0, 60))):
        trial = data.draw(st.sampled_from(sorted(going)))
        steps[trial] = min(27, steps[trial] + data.draw(st.integers(1, 5)))
        best[trial] = min(best[trial], data.draw(BADNESS))
        if halving.report(trial, steps[trial], 27 if known else None, best[trial]):
            going.discard(trial)
        assert going
