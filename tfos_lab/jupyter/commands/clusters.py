"""Commands about the clusters of this notebook: show them, stop them, read their logs, open their TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from tfos_lab.core.plain_table import PlainTable
from tfos_lab.engine.cluster import Cluster
from tfos_lab.engine.start import clusters
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.commands import history
from tfos_lab.jupyter.commands.command import Command, expect
from tfos_lab.jupyter.display import summary
from tfos_lab.jupyter.display.tensorboard import TensorBoardView, view_cluster, view_folder
from tfos_lab.jupyter.options.values import nearest
from tfos_lab.texts import format_seconds

# Last lines of each node; the files have all of them.
LOG_LINES = 200
_COLUMNS = ("name", "state", "nodes", "progress", "on", "time", "logs")


class StatusTable(PlainTable):
    """The clusters of this notebook as a table, in HTML and as text."""

    def __init__(self, clusters: Sequence[Cluster]) -> None:
        now_s = time.time()
        rows = [_row(cluster, now_s) for cluster in clusters]
        super().__init__(_COLUMNS, rows, empty="no cluster yet: write %%tfos above a cell")


def _row(cluster: Cluster, now_s: float) -> tuple[str, ...]:
    view = cluster.view()
    return (
        view.name,
        f"{view.state.look.sign} {view.state}",
        summary.headline(view),
        summary.furthest(view),
        view.launcher,
        format_seconds(summary.elapsed_s(view, now_s)),
        str(cluster.run_dir),
    )


def _status(arguments: list[str]) -> StatusTable:
    expect(arguments, "status", at_most=0)
    return StatusTable(clusters())


def _stop(arguments: list[str]) -> StatusTable:
    expect(arguments, "stop [name|all]", at_most=1)
    living = [cluster for cluster in clusters() if not cluster.ended]
    if arguments and arguments[0] != "all":
        chosen = [cluster for cluster in living if cluster.name == arguments[0]]
        if not chosen:
            raise ConfigError([_no_such(arguments[0], "running")])
    elif len(living) > 1 and not arguments:
        raise ConfigError([f"several clusters run ({', '.join(_names(live=True))}): name one, or write all"])
    else:
        chosen = living
    for cluster in chosen:
        cluster.stop()
    return StatusTable(chosen)


def _logs(arguments: list[str]) -> None:
    expect(arguments, "logs [name] [node]", at_most=2)
    if arguments and arguments[0] not in _names() and (old := history.find_named(arguments[0])):
        history.print_logs(old, arguments[1:], LOG_LINES)
        return
    if not clusters():
        raise ConfigError(["there are no logs: no cluster has run yet"])
    found = [cluster for cluster in clusters() if arguments and cluster.name == arguments[0]]
    if arguments and not found and (len(arguments) > 1 or ":" not in arguments[0]):
        raise ConfigError([_no_such(arguments[0], "there")])
    cluster = (found or clusters())[-1]
    rest = arguments[1:] if found else arguments
    node = rest[0] if rest else None
    nodes = [view.name for view in cluster.nodes]
    if node is not None and node not in nodes:
        raise ConfigError([f"the cluster '{cluster.name}' has no node {node!r}; there are {', '.join(nodes)}"])
    text = cluster.logs(node, tail=LOG_LINES).rstrip() or "nothing was written"
    print(f"{text}\n(the last {LOG_LINES} lines at most; all of them are in {cluster.run_dir})")  # noqa: T201


def _tensorboard(arguments: list[str]) -> TensorBoardView:
    expect(arguments, "tensorboard [name|folder]", at_most=1)
    found = [cluster for cluster in clusters() if not arguments or cluster.name == arguments[0]]
    if found:
        return view_cluster(found[-1])
    if not arguments:
        raise ConfigError(["no cluster has run yet: name a folder with event files, %tfos tensorboard FOLDER"])
    old = history.find_named(arguments[0])
    return view_folder(arguments[0]) if old is None else history.view_events(old)


def _after_stop(finished: list[str]) -> Iterable[str]:
    return () if finished else [*_names(live=True), "all"]


def _after_logs(finished: list[str]) -> Iterable[str]:
    named = [cluster for cluster in clusters() if finished and cluster.name == finished[-1]]
    nodes = [node.name for cluster in named or clusters()[-1:] for node in cluster.nodes]
    return nodes if named else [*_names(), *nodes]


def _after_tensorboard(finished: list[str]) -> Iterable[str]:
    return () if finished else dict.fromkeys([*_names(), *history.run_names()])


COMMANDS = {
    "status": Command(_status),
    "stop": Command(_stop, _after_stop),
    "logs": Command(_logs, _after_logs),
    "tensorboard": Command(_tensorboard, _after_tensorboard),
}


def _names(*, live: bool = False) -> list[str]:
    return list(dict.fromkeys(cluster.name for cluster in clusters() if not (live and cluster.ended)))


def _no_such(name: str, what: str) -> str:
    names = _names(live=what == "running")
    if not names:
        return f"no cluster is {what}"
    close = nearest(name, names)
    hint = f"did you mean {close}?" if close else f"there are {', '.join(names)}"
    return f"no cluster {name!r} is {what}; {hint}"
