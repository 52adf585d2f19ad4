"""What nodes returned, as a mapping."""

from __future__ import annotations

import pytest

from tfos_lab.engine.results import Results
from tfos_lab.messages import Outcome
from tfos_lab.values import encode_value


def results(**outcomes):
    return Results(lambda: {name.replace("_", ":"): outcome for name, outcome in outcomes.items()})


def returned(value):
    return Outcome(kind="returned", value=encode_value(value))


def test_results_map_nodes_to_what_they_returned():
    found = results(chief_0=returned({"loss": 0.5}), worker_0=returned(None))
    assert dict(found) == {"chief:0": {"loss": 0.5}, "worker:0": None}
    assert len(found) == 2
    assert "worker:1" not in found


def test_nodes_that_did_not_return_have_no_result():
    found = results(chief_0=returned(1), worker_0=Outcome(kind="raised", error="ValueError"))
    assert list(found) == ["chief:0"]
    with pytest.raises(KeyError):
        found["worker:0"]


def test_results_show_a_line_for_each_node_and_shorten_long_ones():
    text = repr(results(chief_0=returned(7), worker_0=returned("x" * 500)))
    first, second = text.splitlines()
    assert first == "chief:0: 7"
    assert second.endswith("…")
    assert len(second) < 230
    assert repr(results()) == "no results"
