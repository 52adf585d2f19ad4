"""How rows become steps: each row once, a row of each node in each step, and weights that make means exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfos_lab.node.feed.schedule import Schedule, count_steps, grouped, per_row, rows_at, share_of

SHARES = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 40)), min_size=1, max_size=6)


def schedules(shares, *, drop=False):
    steps = count_steps(shares, drop=drop)
    return [Schedule(steps, rows, size, grouped(shares)) for rows, size in shares]


@given(SHARES)
def test_each_node_s_rows_are_taken_once_in_batches_that_are_not_too_large(shares):
    for schedule in schedules(shares):
        batches = [schedule.rows_at(step) for step in range(schedule.steps)]
        assert sum(batches) == schedule.rows
        assert all(rows <= schedule.batch_size for rows in batches)
        assert batches == sorted(batches, reverse=True)
        assert batches[: schedule.full] == [schedule.batch_size] * schedule.full


@given(SHARES)
def test_a_node_has_a_row_for_each_step_if_it_has_enough(shares):
    for schedule in schedules(shares):
        empty = [step for step in range(schedule.steps) if not schedule.rows_at(step)]
        assert len(empty) == max(0, schedule.steps - schedule.rows)


@given(SHARES, st.booleans())
def test_the_mean_over_nodes_is_the_mean_over_rows(shares, padded):
    """With weights of factor, the mean over nodes of each one's mean of ones is 1."""
    nodes = schedules(shares)
    for step in range(nodes[0].steps):
        means = []
        for node in nodes:
            (factor,) = node.factors(step, step + 1, padded=padded)
            rows = node.rows_at(step)
            means.append(factor * rows / (node.batch_size if padded else max(rows, 1)))
        assert np.mean(means) == pytest.approx(1.0)


@given(SHARES)
def test_factors_of_many_steps_are_those_of_each(shares):
    for schedule in schedules(shares):
        singly = [factor for step in range(schedule.steps) for factor in schedule.factors(step, step + 1)]
        assert schedule.factors(0, schedule.steps) == pytest.approx(singly)


@given(st.integers(0, 2000), st.integers(1, 8), st.integers(1, 40))
def test_full_batches_may_be_taken_before_the_number_of_rows_is_known_if_one_row_stays(rows, nodes, size):
    """Nodes have the same number of rows but for one; what any of them takes early is full, and so it is on all."""
    shares = [(stop - start, size) for start, stop in (share_of(rows, nodes, index) for index in range(nodes))]
    sure = rows // nodes  # what each has before the last rows are dealt out
    early = max(0, (sure - 1) // size)
    for schedule in schedules(shares):
        assert schedule.even_steps >= early
        assert schedule.factors(0, early) == [1.0] * early


@given(SHARES)
def test_drop_ends_with_the_last_step_that_is_full_on_all_nodes(shares):
    for schedule in schedules(shares, drop=True):
        assert schedule.is_even
        assert schedule.rows >= schedule.steps * schedule.batch_size


@given(st.integers(0, 300), st.integers(1, 9))
def test_shares_are_all_there_is_and_differ_by_one_row(count, nodes):
    parts = [share_of(count, nodes, index) for index in range(nodes)]
    assert [row for start, stop in parts for row in range(start, stop)] == list(range(count))
    sizes = [stop - start for start, stop in parts]
    assert max(sizes) - min(sizes) <= 1


def test_factors_of_batches_that_differ_are_given_row_by_row():
    assert per_row([1.0, 1.0], 3) == 1.0
    assert per_row([1.0, 0.5], 2).tolist() == [1.0, 1.0, 0.5, 0.5]


def test_the_first_nodes_of_a_step_with_too_few_rows_have_one():
    assert [rows_at(rows, 1, 3, 2) for rows in (3, 2, 2)] == [1, 0, 0]
