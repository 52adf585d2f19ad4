"""What a user may ask for, and how anything else is refused."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import get_type_hints

import pytest

import tfos_lab
from tfos_lab.core.config import ClusterConfig, ClusterOptions, FeedConfig, make_config
from tfos_lab.core.options import options_of
from tfos_lab.errors import ConfigError


def problems_of(**options):
    with pytest.raises(ConfigError) as error:
        ClusterConfig(**options)
    return error.value.problems


def problem_of(**options):
    (problem,) = problems_of(**options)
    return problem


def test_the_defaults_are_a_cluster_of_one_chief():
    config = ClusterConfig()
    assert (config.cluster_size, config.num_ps, config.master_node, config.eval_node) == (1, 0, "chief", False)
    assert (config.reservation_timeout_s, config.grace_s) == (600.0, 10.0)


def test_the_output_options_are_checked():
    assert problem_of(output="workers") == "output='workers': use one of chief, all"
    assert problem_of(output_limit_bytes=-1) == "output_limit_bytes=-1: a whole number of bytes is needed"
    assert problem_of(output_limit_bytes="1 GB") == "output_limit_bytes='1 GB': a whole number of bytes is needed"
    assert ClusterConfig(output="all", output_limit_bytes=0).output_limit_bytes == 0


def test_a_configuration_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ClusterConfig().cluster_size = 2


def test_all_problems_are_reported_together():
    problems = problems_of(cluster_size=0, master_node="boss", local="cloud", grace_s="long", env={"TF_CONFIG": "{}"})
    assert [problem.partition("=")[0].partition("[")[0] for problem in problems] == [
        "cluster_size",
        "master_node",
        "local",
        "env",
        "grace_s",
    ]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cluster_size": 0}, "cluster_size=0: at least one node is needed"),
        ({"cluster_size": 2.0}, "cluster_size=2.0: a whole number is needed"),
        ({"cluster_size": True}, "cluster_size=True: a whole number is needed"),
        ({"cluster_size": "4"}, "cluster_size='4': a whole number is needed"),
        ({"num_ps": -1}, "num_ps=-1: cannot be negative"),
        (
            {"driver_ps": True},
            "driver_ps: there is no parameter server to run on the notebook's machine; ask for num_ps=1 or more",
        ),
        ({"restarts": -1}, "restarts=-1: cannot be negative"),
        (
            {"restarts": 2, "local": "inline"},
            "restarts=2: inline runs in this very process, which cannot start again",
        ),
        ({"gpus": -1}, "gpus=-1: a whole number of GPUs per node is needed"),
        ({"gpus": 0.5}, "gpus=0.5: a whole number of GPUs per node is needed"),
        ({"reservation_timeout_s": -1}, "reservation_timeout_s=-1: a number of seconds is needed"),
        ({"grace_s": None}, "grace_s=None: a number of seconds is needed"),
        ({"name": ""}, "name='': a label is needed"),
        ({"env": ["A=1"]}, "env=['A=1']: a dict of names and values is needed"),
        ({"env": {"A": 1}}, "env['A']: names and values must be strings"),
        ({"env": {"TF_CONFIG": "{}"}}, "env['TF_CONFIG']: is set by tfos_lab on every node"),
    ],
)
def test_a_problem_names_the_option_its_value_and_what_is_needed(options, text):
    assert problem_of(**options) == text


def test_parameter_servers_that_leave_no_worker_are_refused_with_the_size_that_would_do():
    assert problem_of(cluster_size=2, num_ps=2) == (
        "num_ps=2: leaves no node to train in a cluster of 2; ask for cluster_size=3 or more"
    )
    assert problem_of(cluster_size=2, num_ps=1, eval_node=True) == (
        "num_ps=1 and eval_node: leaves no node to train in a cluster of 2; ask for cluster_size=3 or more"
    )


def test_a_wrong_leader_is_refused_with_those_that_can_lead():
    text = problem_of(master_node="president")
    assert text.startswith("master_node='president': not a job name that can lead")
    assert "'chief' or 'master'" in text
    assert "None" in text


def test_a_wrong_choice_is_refused_with_all_choices():
    assert problem_of(local="cloud") == "local='cloud': use one of auto, processes, inline, false"


def test_whole_seconds_are_seconds():
    assert ClusterConfig(grace_s=0, reservation_timeout_s=5).grace_s == 0


@pytest.mark.parametrize(
    ("given", "meant"),
    [("/logs", "/logs"), ("gs://bucket/logs", "gs://bucket/logs"), (Path("/logs/new"), "/logs/new"), (None, None)],
)
def test_a_log_dir_is_the_same_for_all_nodes(given, meant):
    assert ClusterConfig(log_dir=given).log_dir == meant


def test_a_relative_log_dir_lies_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ClusterConfig(log_dir="logs").log_dir == str(tmp_path / "logs")


@pytest.mark.parametrize("folder", ["", 0.1])
def test_a_log_dir_that_is_no_folder_is_refused(folder):
    with pytest.raises(ConfigError, match=r"log_dir=.*: a folder is needed"):
        ClusterConfig(log_dir=folder)


# ---- derived from the declarations ----------------------------------------------------------------------------------


def test_type_checkers_know_the_keywords_of_run():
    fields, keywords = get_type_hints(ClusterConfig), get_type_hints(ClusterOptions)
    assert list(keywords) == [one.keyword for one in options_of(ClusterConfig)]
    for one in options_of(ClusterConfig):
        expected = fields[one.keyword] | None if one.none_is_default else fields[one.keyword]
        assert keywords[one.keyword] == expected, one.keyword


def test_the_signature_of_run_is_the_documented_one():
    parameters = inspect.signature(tfos_lab.run).parameters
    positional = [name for name, one in parameters.items() if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert positional == ["map_fun", "args"]
    keywords = {name: one.default for name, one in parameters.items() if one.kind is inspect.Parameter.KEYWORD_ONLY}
    assert keywords == {
        "spark": None,
        "cluster_size": 1,
        "num_ps": 0,
        "driver_ps": False,
        "master_node": "chief",
        "eval_node": False,
        "tensorboard": False,
        "log_dir": None,
        "name": None,
        "local": "auto",
        "restarts": 0,
        "gpus": None,
        "env": None,
        "output": "chief",
        "output_limit_bytes": 8 << 30,
        "log_limit_bytes": 0,
        "keep_runs": None,
        "keep_days": None,
        "reservation_timeout_s": 600.0,
        "grace_s": 10.0,
        "hang_timeout_s": 60.0,
        "on_hang": "warn",
        "on_evaluator_failure": "warn",
    }


def test_the_help_of_run_describes_each_option():
    for one in options_of(ClusterConfig):
        assert f"\n    {one.keyword} : {one.annotation}, default " in tfos_lab.run.__doc__


def test_train_has_the_options_of_a_feed_with_their_defaults():
    parameters = inspect.signature(tfos_lab.Cluster.train).parameters
    for one in options_of(FeedConfig):
        assert parameters[one.keyword].default == one.default


def test_name_and_env_may_be_none():
    assert make_config(name=None, env=None) == ClusterConfig()


def test_a_keyword_that_is_no_option_is_refused():
    with pytest.raises(TypeError, match=r"run\(\) got an unexpected keyword argument 'clustersize'"):
        tfos_lab.run(print, clustersize=2)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"epochs": 0}, "epochs=0: at least one is needed"),
        ({"epochs": 1.5}, "epochs=1.5: a whole number is needed"),
        ({"remainder": "wrap"}, "remainder='wrap': use one of exact, pad, drop"),
        ({"objects": 1}, "objects=1: say True for rows as Python objects, False for columns, or leave it out"),
        ({"timeout_s": 0}, "timeout_s=0: a number of seconds, more than 0, is needed"),
    ],
)
def test_options_of_a_feed_are_checked(options, text):
    with pytest.raises(ConfigError) as error:
        FeedConfig(**options)
    assert error.value.problems == [text]
