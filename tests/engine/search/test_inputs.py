"""What each trial gets: arguments, a cluster of its size, rows."""

from __future__ import annotations

import argparse
from types import SimpleNamespace

import numpy as np
import pytest

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.launchers import LAUNCHERS
from tfos_lab.engine.search.inputs import Sizes, check_args, make_feed, merge_args
from tfos_lab.engine.search.space import make_space
from tfos_lab.errors import ConfigError, NoSession

SPACE = make_space({"nodes": [1, 2], "lr": [0.1]})
FEED = {"epochs": 1, "columns": None, "remainder": "exact", "timeout_s": 600.0, "spool_bytes": None, "objects": None}


def sizes(wanted, launcher="local", **options):
    return Sizes(wanted, ClusterConfig(cluster_size=3, **options), LAUNCHERS[launcher])


def test_parameters_are_added_to_the_arguments():
    assert merge_args(None, {"lr": 1}) == {"lr": 1}
    fixed = {"lr": 0, "data": "x"}
    assert merge_args(fixed, {"lr": 1}) == {"lr": 1, "data": "x"}
    assert fixed["lr"] == 0
    namespace = argparse.Namespace(lr=0, data="x")
    merged = merge_args(namespace, {"lr": 1})
    assert (merged.lr, merged.data, namespace.lr) == (1, "x", 0)


def test_other_arguments_are_refused():
    with pytest.raises(ConfigError, match=r"args=5: a dict, or an argparse.Namespace, is needed"):
        check_args(5)


def test_the_size_is_a_number_a_parameter_or_a_function():
    assert sizes(2).slots_for({}) == 2
    assert sizes("nodes").slots_for({"nodes": 2}) == 2
    assert sizes(lambda params: params["nodes"] + 1).slots_for({"nodes": 2}) == 3
    assert sizes(3, num_ps=1, driver_ps=True).slots_for({}) == 2, "the parameter server takes no slot"
    assert sizes(2, "inline").slots_for({}) == 1


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (0, "cluster_size=0: a whole number from 1 on is needed"),
        (1.5, "cluster_size=1.5"),
        ("size", "cluster_size='size': no parameter of that name; there are nodes, lr"),
    ],
)
def test_what_is_no_size_is_refused(wanted, text):
    with pytest.raises(ConfigError) as caught:
        sizes(wanted).check(SPACE)
    assert text in str(caught.value)


def test_a_size_that_a_function_gets_wrong_is_told_with_the_parameters():
    with pytest.raises(ConfigError) as caught:
        sizes(lambda params: params["nods"]).slots_for({"nodes": 2})
    assert str(caught.value) == "cluster_size: your function raised KeyError: 'nods' for {'nodes': 2}"
    with pytest.raises(ConfigError, match="cluster_size='2' for"):
        sizes("nodes").slots_for({"nodes": "2"})


def test_too_few_nodes_for_the_roles_are_refused():
    with pytest.raises(ConfigError, match="leaves no node to train in a cluster of 1"):
        sizes(1, num_ps=1).check(SPACE)


def test_without_data_nothing_is_fed():
    assert make_feed(None, None, FEED) is None


def test_a_trial_is_fed_as_a_cluster_is():
    calls = []
    cluster = SimpleNamespace(train=lambda data, **options: calls.append((data, options)))
    make_feed("/data/*.parquet", None, {**FEED, "epochs": 3})(cluster)
    assert calls == [("/data/*.parquet", {**FEED, "epochs": 3})]


def test_what_cannot_be_fed_is_refused_before_anything_begins():
    with pytest.raises(ConfigError, match="epochs=0"):
        make_feed("x", None, {**FEED, "epochs": 0})
    with pytest.raises(ConfigError, match="data is a stream"):
        make_feed(SimpleNamespace(isStreaming=True), None, FEED)
    with pytest.raises(NoSession, match="ndarray"):
        make_feed(np.zeros((2, 2)), None, FEED)
