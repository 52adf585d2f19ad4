"""The table of launchers: what they can do, and which one is chosen."""

from __future__ import annotations

import pytest

from tests.support.subprocess_launcher import subprocess_launcher
from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.launchers import LAUNCHERS, automatic_launcher, launcher_for, local_choices
from tfos_lab.engine.launchers.base import Launcher, launcher_factory
from tfos_lab.errors import ConfigError


def named(trait):
    return [traits.name for traits in LAUNCHERS.values() if getattr(traits, trait)]


def test_launchers_have_these_traits():
    assert list(LAUNCHERS) == ["local", "inline", "spark"]
    assert named("runs_inline") == named("max_nodes") == ["inline"]
    assert named("spans_hosts") == named("needs_session") == ["spark"]
    assert named("checks_capacity") == ["local"]


@pytest.mark.parametrize("traits", LAUNCHERS.values(), ids=lambda traits: traits.name)
def test_every_entry_names_a_launcher(traits):
    assert issubclass(launcher_factory(traits), Launcher)


@pytest.mark.parametrize(
    ("name", "class_name"), [("spark", "DriverPsLauncher"), ("local", "LocalLauncher"), ("inline", "InlineLauncher")]
)
def test_only_a_launcher_for_other_machines_leaves_parameter_servers_to_the_driver_s(name, class_name):
    assert launcher_factory(LAUNCHERS[name], driver_ps=True).__name__ == class_name


@pytest.mark.parametrize(
    ("local", "name"), [("processes", "local"), ("inline", "inline"), ("false", "spark"), ("auto", None)]
)
def test_the_option_local_asks_for_a_launcher(local, name):
    launcher = launcher_for(local)
    assert (launcher.name if launcher else None) == name


def test_the_automatic_choice_is_spark_on_a_cluster_and_processes_elsewhere():
    assert automatic_launcher(on_cluster=True).name == "spark"
    assert automatic_launcher(on_cluster=False).name == "local"


def test_a_new_launcher_is_one_entry():
    assert local_choices() == ("auto", "processes", "inline", "false")
    with subprocess_launcher():
        assert local_choices() == ("auto", "processes", "inline", "false", "subprocess")
        assert ClusterConfig(local="subprocess", restarts=1).local == "subprocess"
        assert launcher_for("subprocess").name == "subprocess"
    with pytest.raises(ConfigError, match="use one of auto, processes, inline, false"):
        ClusterConfig(local="subprocess")
