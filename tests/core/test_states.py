"""The states of nodes and clusters, and their traits."""

from __future__ import annotations

import pickle

import msgspec
import pytest

from tfos_lab.core.states import NodeState, RunState, known_run_state


def named(states, trait):
    return [str(state) for state in states if getattr(state, trait)]


def test_node_states_have_these_traits():
    assert named(NodeState, "ended") == ["done", "failed", "lost", "stopped", "stopped early"]
    assert named(NodeState, "is_broken") == ["failed", "lost"]
    assert named(NodeState, "is_up") == ["running", "serving", "done"]
    assert named(NodeState, "is_present") == ["reserved", "importing", "starting", "running", "serving", "stopping"]
    assert named(NodeState, "is_replaceable") == ["waiting", "reserved"]
    assert [str(state) for state in NodeState if not state.has_agent] == ["waiting", "lost"]


def test_run_states_have_these_traits():
    assert named(RunState, "ended") == ["done", "failed", "stopped", "lost"]
    assert named(RunState, "is_broken") == ["failed", "lost"]
    assert named(RunState, "has_begun") == ["running", "stopping", "done", "failed", "stopped", "lost"]
    assert named(RunState, "is_settled") == ["restarting", "done", "failed", "stopped", "lost"]
    assert named(RunState, "is_ending") == ["restarting", "stopping", "done", "failed", "stopped", "lost"]
    assert named(RunState, "stop_requested") == ["stopping", "stopped"]


def test_states_are_ordered_by_progress():
    path = ["waiting", "reserved", "importing", "starting", "running", "serving", "done"]
    assert sorted(path, key=lambda word: NodeState(word).order) == path
    path = ["launching", "reserving", "starting", "running", "stopping", "stopped"]
    assert sorted(path, key=lambda word: RunState(word).order) == path


@pytest.mark.parametrize("state", [*NodeState, *RunState])
def test_a_state_is_its_word_wherever_it_goes(state):
    assert state == state.value
    assert f"{state}" == state.value
    assert repr(state) == repr(state.value)
    assert msgspec.json.encode({"state": state}) == msgspec.json.encode({"state": state.value})
    assert pickle.loads(pickle.dumps(state)) is state


def test_nodes_and_clusters_in_a_state_of_the_same_name_look_alike_in_the_style_sheet():
    for state in NodeState:
        other = known_run_state(state)
        assert other is None or (other.look.tone, other.ended) == (state.look.tone, state.ended)


def test_words_of_other_versions_are_no_known_state():
    assert known_run_state("failed") is RunState.FAILED
    assert known_run_state("hibernating") is None
