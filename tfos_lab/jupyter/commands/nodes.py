"""Commands about what nodes do now, ``[cluster] [node]``: where their threads are, and what takes their time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tfos_lab.engine.cluster import Cluster
from tfos_lab.engine.profile.profiles import Profile
from tfos_lab.engine.start import clusters
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.commands.command import Command
from tfos_lab.jupyter.options.values import nearest

_STACKS_USAGE = "stacks [cluster] [node]"
_STACKS_TIMEOUT_S = 5.0
_PROFILE_USAGE = "profile [cluster] [node] [seconds] [trace]"
_TRACE = "trace"
_SECONDS = 5.0
_LONGEST_S = 600.0


def running_clusters() -> list[Cluster]:
    """Return the clusters that run, oldest first."""
    return [cluster for cluster in clusters() if not cluster.ended]


def cluster_and_node(arguments: Sequence[str], *, usage: str) -> tuple[Cluster, str | None]:
    """Return the cluster that is meant, the newest that runs by default, and the node, or None for all.

    Raises
    ------
    ConfigError
        If none runs, or none has such a name or node.
    """
    if len(arguments) > 2:
        raise ConfigError([f"too many arguments: the command is %tfos {usage}"])
    running = running_clusters()
    if not running:
        raise ConfigError([f"no cluster is running: %tfos {usage} is about nodes that work"])
    named = [cluster for cluster in running if arguments and cluster.name == arguments[0]]
    rest = list(arguments[1:] if named else arguments)
    if len(rest) > 1:
        raise ConfigError([_unknown(rest[0], "cluster", [cluster.name for cluster in running])])
    cluster = (named or running)[-1]
    nodes = [view.name for view in cluster.nodes]
    if rest and rest[0] not in nodes:
        names = nodes if named or ":" in rest[0] else [*nodes, *(cluster.name for cluster in running)]
        raise ConfigError([_unknown(rest[0], f"node in the cluster '{cluster.name}'", names)])
    return cluster, rest[0] if rest else None


def complete_node(finished: Sequence[str]) -> Iterable[str]:
    """Return what can follow the finished arguments."""
    running = running_clusters()
    named = [cluster for cluster in running if finished and cluster.name == finished[0]]
    if finished and not named:
        return []
    nodes = [view.name for cluster in (named or running)[-1:] for view in cluster.nodes]
    return nodes if named else [*dict.fromkeys(cluster.name for cluster in running), *nodes]


def _unknown(word: str, what: str, known: Sequence[str]) -> str:
    close = nearest(word, known)
    return f"there is no {what} called {word!r}; " + (
        f"did you mean {close}?" if close else f"there are {', '.join(known)}"
    )


def _stacks(arguments: list[str]) -> None:
    """Print the stacks of a node, or of all, with what is known of each."""
    cluster, node = cluster_and_node(arguments, usage=_STACKS_USAGE)
    hung = {view.name: view.hung for view in cluster.nodes}
    for name, text in cluster.stacks(node, timeout=_STACKS_TIMEOUT_S).items():
        print(f"{_heading(name, hung[name])}\n{_indented(text)}\n")  # noqa: T201


def _heading(node: str, hung: str) -> str:
    return f"{node}: {hung}" if hung else node


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.splitlines())


def _profile(arguments: list[str]) -> Profile:
    """Return what a node, the chief by default, spends its time on: a flame graph, and a trace for TensorBoard."""
    seconds, trace = _SECONDS, None
    if arguments and arguments[-1] == _TRACE:
        *arguments, _ = arguments
        trace = True
    if arguments and (given := _number(arguments[-1])) is not None:
        *arguments, _ = arguments
        seconds = given
    if not 0 < seconds <= _LONGEST_S:
        raise ConfigError([f"%tfos {_PROFILE_USAGE}: {seconds:g} seconds; give more than 0 and at most {_LONGEST_S:g}"])
    cluster, node = cluster_and_node(arguments, usage=_PROFILE_USAGE)
    return cluster.profile(node, seconds, trace=trace)


def _number(text: str) -> float | None:
    try:
        return float(text.removesuffix("s"))
    except ValueError:
        return None


COMMANDS = {"stacks": Command(_stacks, complete_node), "profile": Command(_profile, complete_node)}
