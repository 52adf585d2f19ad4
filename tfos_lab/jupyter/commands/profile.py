"""``%tfos profile``: what a node spends its time on, as a flame graph and a trace for TensorBoard."""

from __future__ import annotations

from tfos_lab.engine.profile.profiles import Profile
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.commands.node_arguments import cluster_and_node

USAGE = "profile [cluster] [node] [seconds] [trace]"
_TRACE = "trace"
_SECONDS = 5.0
_LONGEST_S = 600.0


def make_profile(arguments: list[str]) -> Profile:
    """Profile a node, the one that leads by default, and return what the cell shows."""
    seconds, trace = _SECONDS, None
    if arguments and arguments[-1] == _TRACE:
        *arguments, _ = arguments
        trace = True
    if arguments and (given := _number(arguments[-1])) is not None:
        *arguments, _ = arguments
        seconds = given
    if not 0 < seconds <= _LONGEST_S:
        raise ConfigError([f"%tfos {USAGE}: {seconds:g} seconds; give more than 0 and at most {_LONGEST_S:g}"])
    cluster, node = cluster_and_node(arguments, usage=USAGE)
    return cluster.profile(node, seconds, trace=trace)


def _number(text: str) -> float | None:
    try:
        return float(text.removesuffix("s"))
    except ValueError:
        return None
