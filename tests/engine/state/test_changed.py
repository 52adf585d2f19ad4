"""A copy with other fields is what `dataclasses.replace` makes."""

from __future__ import annotations

from dataclasses import replace

from tfos_lab.core.states import NodeState
from tfos_lab.engine.state.changed import changed, made_of
from tfos_lab.engine.state.events import NodeView


def test_it_is_another_value_with_the_same_other_fields():
    view = NodeView("worker:0", "worker", 0, is_chief=False, state=NodeState.RUNNING, rows=3)
    other = changed(view, rows=4)
    assert other == replace(view, rows=4)
    assert view.rows == 3
    assert vars(view) is not vars(other)
    assert hash(other.state) == hash(view.state)


def test_it_may_be_made_of_all_its_fields():
    view = NodeView("worker:0", "worker", 0, is_chief=False)
    made = made_of(NodeView, dict(vars(view)))
    assert (type(made), made) == (NodeView, view)
    assert vars(made) is not vars(view)
