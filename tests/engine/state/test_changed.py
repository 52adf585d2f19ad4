"""A copy with other fields is what `dataclasses.replace` makes."""

from __future__ import annotations

from dataclasses import replace

from tfos_lab.core.states import NodeState
from tfos_lab.engine.state.changed import changed
from tfos_lab.engine.state.events import NodeView


def test_it_is_another_value_with_the_same_other_fields():
    view = NodeView("worker:0", "worker", 0, is_chief=False, state=NodeState.RUNNING, rows=3)
    other = changed(view, rows=4)
    assert other == replace(view, rows=4)
    assert view.rows == 3
    assert hash(other.state) == hash(view.state)
