"""%tfos stacks and %tfos profile: which cluster and node are meant, and what is shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.jupyter.scripted import ScriptedCluster
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.commands.node_arguments import cluster_and_node, complete_node
from tfos_lab.jupyter.commands.profile import make_profile
from tfos_lab.jupyter.commands.stacks import show_stacks


class Cluster(ScriptedCluster):
    """Answers for its nodes at once."""

    def stacks(self, node: str | None = None, timeout_s: float = 0.0) -> dict[str, str]:
        return {name: f"main thread of {name}\n\nother" for name in ([node] if node else ["chief:0", "worker:0"])}

    def profile(self, node: str | None, seconds: float, *, trace: bool | None) -> Any:
        return SimpleNamespace(asked=(self.name, node, seconds, trace))


@pytest.fixture(autouse=True)
def clusters(monkeypatch: pytest.MonkeyPatch) -> list[Cluster]:
    clusters = [Cluster("ended"), Cluster("a", forever=True), Cluster("b", forever=True)]
    monkeypatch.setattr("tfos_lab.jupyter.commands.node_arguments.clusters", lambda: clusters)
    return clusters


@pytest.mark.parametrize(
    ("arguments", "name", "node"),
    [
        ([], "b", None),
        (["a"], "a", None),
        (["worker:0"], "b", "worker:0"),
        (["a", "chief:0"], "a", "chief:0"),
    ],
)
def test_the_newest_cluster_that_runs_is_meant_unless_another_is_named(
    arguments: list[str], name: str, node: str | None
) -> None:
    cluster, found = cluster_and_node(arguments, usage="stacks")
    assert (cluster.name, found) == (name, node)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["worker:7"], "there is no node in the cluster 'b' called 'worker:7'; did you mean worker:0?"),
        (["a", "ps:0"], "there is no node in the cluster 'a' called 'ps:0'; "),
        (["ended", "chief:0"], "there is no cluster called 'ended'; there are a, b"),
        (["a", "b", "c"], "too many arguments: the command is %tfos stacks"),
    ],
)
def test_what_is_not_there_is_told(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        cluster_and_node(arguments, usage="stacks")
    assert str(error.value).startswith(message)


def test_without_a_cluster_that_runs_there_is_nothing_to_ask(clusters: list[Cluster]) -> None:
    del clusters[1:]
    with pytest.raises(ConfigError, match="no cluster is running: %tfos stacks"):
        show_stacks([])


def test_names_are_completed() -> None:
    assert list(complete_node([])) == ["a", "b", "chief:0", "worker:0"]
    assert list(complete_node(["a"])) == ["chief:0", "worker:0"]
    assert list(complete_node(["worker:0"])) == []


def test_stacks_are_printed_below_the_names_of_their_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    show_stacks(["worker:0"])
    assert capsys.readouterr().out == "worker:0\n  main thread of worker:0\n\n  other\n\n"
    show_stacks([])
    assert "chief:0\n  main thread of chief:0\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ([], ("b", None, 5.0, None)),
        (["2.5"], ("b", None, 2.5, None)),
        (["worker:0", "10s"], ("b", "worker:0", 10.0, None)),
        (["a", "chief:0"], ("a", "chief:0", 5.0, None)),
        (["worker:0", "3", "trace"], ("b", "worker:0", 3.0, True)),
        (["trace"], ("b", None, 5.0, True)),
    ],
)
def test_a_profile_is_made_of_the_node_for_the_seconds(arguments: list[str], asked: tuple[Any, ...]) -> None:
    profile: Any = make_profile(arguments)
    assert profile.asked == asked


@pytest.mark.parametrize("seconds", ["0", "-1", "601", "nan"])
def test_a_profile_takes_a_sensible_time(seconds: str) -> None:
    with pytest.raises(ConfigError, match="give more than 0 and at most 600"):
        make_profile([seconds])
