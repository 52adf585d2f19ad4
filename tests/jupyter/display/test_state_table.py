"""The states as the page gets them."""

from __future__ import annotations

from tfos_lab.jupyter.display import summary
from tfos_lab.jupyter.display.state_table import ended_states, state_table


def test_every_state_that_python_draws_is_in_the_table() -> None:
    table = state_table()
    assert {*table["cluster"], *table["node"]} == set(summary.STATE_SIGNS)


def test_a_node_that_is_stopping_is_not_drawn_as_waiting() -> None:
    nodes = state_table()["node"]
    assert nodes["stopping"]["shape"] != nodes["waiting"]["shape"]


def test_states_end_alike_in_python_and_on_the_page() -> None:
    clusters = state_table()["cluster"]
    assert {name for name, traits in clusters.items() if traits["ended"]} == {*summary.ENDED_STATES, "lost"}
    assert {*summary.ENDED_STATES, *summary.BROKEN_STATES} == set(ended_states())
