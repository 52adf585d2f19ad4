"""The commands of ``%tfos``: about clusters of this notebook and their nodes, earlier runs, options, this machine."""

from __future__ import annotations

import contextlib
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tfos_lab.core.config import ClusterOptions
from tfos_lab.core.markup import PlainTable
from tfos_lab.core.paths import short_path
from tfos_lab.driver.cluster import Cluster
from tfos_lab.driver.doctor import examine
from tfos_lab.driver.doctor.checks import render_text
from tfos_lab.driver.profile import Profile
from tfos_lab.driver.runs.read import choose_run, fitting, may_mean, name_place, read_runs
from tfos_lab.driver.runs.run import Run
from tfos_lab.driver.start import clusters
from tfos_lab.driver.warm_servers import describe, end_warm_servers, warm, warm_servers
from tfos_lab.errors import ConfigError, NoRun
from tfos_lab.launchers.this_machine import outlives_kernels
from tfos_lab.notebook.cell.export import NotebookCells, write
from tfos_lab.notebook.display import summary
from tfos_lab.notebook.display.history import SHOWN, Comparison, HistoryTable, RunPage, short_ids
from tfos_lab.notebook.display.tensorboard import TensorBoardView, view_cluster, view_folder
from tfos_lab.notebook.interactive import start_cluster
from tfos_lab.notebook.options import (
    BY_NAME,
    CONFIGURABLE,
    DEFAULTS,
    folded,
    problems_with,
    read_line,
    source_of,
    split_line,
)
from tfos_lab.texts import suggest

# Last lines of each node; the files have all of them.
_LOG_LINES = 200
_STACKS_TIMEOUT_S = 5.0
_PROFILE_S = 5.0

Arguments = Sequence[str]

#: What follows ``%tfos``, and what it does: for the help, the document and what is refused.
FORMS: Mapping[str, str] = {
    "": "list the clusters of this notebook",
    "start [option=value ...]": (
        "start nodes that wait for cells; `%%tfos on=NAME` runs a cell on them, `%%tfos on=NAME/worker:1` on one of "
        "them, and names stay there from cell to cell"
    ),
    "stop [name|all]": "stop one cluster, or all",
    "logs [name] [node]": "print the last lines of the logs",
    "stacks [name] [node]": "print where the threads of the nodes are now, without stopping them",
    "profile [name] [node] [seconds] [trace]": (
        "what a node spends its time on: a flame graph, and TensorFlow's trace for TensorBoard, which a cluster of "
        "several nodes takes only with `trace`"
    ),
    "history [last=N|all] [folder=PATH]": "list the runs of this and earlier kernels",
    "history A": "show a run again, as its cell did; where several are of that name, tag or pattern, list those",
    "history A B ...": "show runs beside one another",
    "tensorboard [name|folder]": "show TensorBoard for a run or a folder, also for old runs",
    "export FILE.html [NAME]": "write a run, the newest by default, as a page to send to somebody",
    "export FILE.py [NUMBER|NAME ...]": (
        "write a cell as a script for `spark-submit`: the last one, or those of these numbers or names"
    ),
    "warm": (
        "start the fork servers before they are needed; on this machine, show those that outlive kernels: memory, age, "
        "and the kernels that use them"
    ),
    "warm stop": "end those that no node needs now",
    "doctor": "check that everything is there",
    "config [option=value ...]": "show the defaults of options, or set some for the cells of this notebook",
    "config reset [option ...]": "forget these, or all",
}


def describe_commands() -> str:
    """Return all commands as text, for ``%%tfos?``."""
    return "\n".join(f"%tfos {form}".rstrip() + f"\n{folded(meaning, 4, 4)}" for form, meaning in FORMS.items())


class _Command(NamedTuple):
    """What a command does with its arguments, and what can follow those that are finished.

    One that ``takes_options`` gets the text instead, as the line of a cell has quotes and expressions of its own.
    """

    run: Callable[[Any], Any]
    complete: Callable[[Arguments], Iterable[str]] = lambda _finished: ()
    takes_options: bool = False


class Commands:
    """The commands of one notebook, which is that of a shell; ``cells`` returns the cells that were run before."""

    def __init__(self, shell: Any, cells: Callable[[], NotebookCells]) -> None:
        self._commands = {
            "start": _Command(
                lambda line: start_cluster(shell, line),
                lambda _: [f"{one.name}=" for one in BY_NAME.values() if one.owner is ClusterOptions],
                takes_options=True,
            ),
            "stop": _Command(_stop, lambda finished: () if finished else [*_names(_running()), "all"]),
            "logs": _Command(_logs, lambda finished: _names_and_nodes(finished, clusters())),
            "tensorboard": _Command(
                _tensorboard,
                lambda finished: () if finished else dict.fromkeys([*_names(clusters()), *_names_of_runs()]),
            ),
            "stacks": _Command(_stacks, lambda finished: _names_and_nodes(finished, _running())),
            "profile": _Command(_profile, lambda finished: _names_and_nodes(finished, _running())),
            "history": _Command(show_history, lambda _: _names_of_runs()),
            "export": _Command(lambda arguments: _export(arguments, cells())),
            "warm": _Command(_warm, lambda finished: () if finished else ["stop"]),
            "doctor": _Command(_doctor),
            "config": _Command(
                lambda line: _config(line, shell.user_ns),
                lambda _: ["reset", *(f"{name}=" for name in CONFIGURABLE)],
                takes_options=True,
            ),
        }

    def run(self, line: str) -> Any:
        """Run the command that follows ``%tfos``, and return what the cell shows; without one, list the clusters.

        Raises `ConfigError` for an unknown command, and for arguments that it does not take.
        """
        if not line.strip():
            return StatusTable(clusters())
        name, *more = line.split(maxsplit=1)
        command = self._commands.get(name)
        if command is None:
            if "=" in name or name in BY_NAME:
                raise ConfigError([f"options belong to a cell: write %%tfos {line} and the code below it"])
            raise ConfigError([f"%tfos has no command {name!r}; {suggest(name, self._commands)}"])
        rest = "".join(more).strip()
        if command.takes_options:
            return command.run(rest)
        try:
            arguments = shlex.split(rest)
        except ValueError as error:
            raise ConfigError([f"%tfos {line}: {error}"]) from error
        return command.run(arguments)

    def complete(self, finished: list[str]) -> Iterable[str]:
        """Return what can follow the finished arguments."""
        if not finished:
            return self._commands
        command = self._commands.get(finished[0])
        return command.complete(finished[1:]) if command else ()


def _usage(command: str) -> str:
    """Return how a command is written, such as ``"%tfos warm or %tfos warm stop"``."""
    return " or ".join(f"%tfos {form}" for form in FORMS if form.partition(" ")[0] == command)


def _expect(arguments: Arguments, command: str, *, at_most: int) -> None:
    if len(arguments) > at_most:
        raise ConfigError([f"too many arguments: the command is {_usage(command)}"])


# ---- clusters of this notebook --------------------------------------------------------------------------------------


class StatusTable(PlainTable):
    """The clusters of this notebook as a table, in HTML and as text."""

    def __init__(
        self, clusters: Sequence[Cluster], *, empty: str = "no cluster yet: write %%tfos above a cell"
    ) -> None:
        views, now_s = [cluster.view() for cluster in clusters], time.time()
        rows = [
            (view.name, *summary.status_row(view, now_s), short_path(cluster.run_dir))
            for cluster, view in zip(clusters, views, strict=True)
        ]
        titles = ("name", *summary.STATUS, "logs")
        super().__init__(titles, rows, empty=empty)


def _stop(arguments: Arguments) -> StatusTable:
    _expect(arguments, "stop", at_most=1)
    running = _running()
    if arguments and arguments[0] != "all":
        chosen = [cluster for cluster in running if cluster.name == arguments[0]]
        if not running:
            raise ConfigError(["no cluster is running"])
        if not chosen:
            raise ConfigError([f"no cluster {arguments[0]!r} is running; {suggest(arguments[0], _names(running))}"])
    elif len(running) > 1 and not arguments:
        raise ConfigError([f"several clusters run ({', '.join(_names(running))}): name one, or write all"])
    else:
        chosen = running
    for cluster in chosen:
        cluster.stop()
    return StatusTable(chosen, empty="no cluster is running")


def _logs(arguments: Arguments) -> None:
    _expect(arguments, "logs", at_most=2)
    known = clusters()
    shown: Cluster | Run
    name = arguments[0] if arguments else ""
    is_place = "://" in name or Path(name).is_dir()
    if name and (not known or (name not in _names(known) and (is_place or _find_run(name)))):
        shown, node = choose_run(name, read_runs()), "".join(arguments[1:])
    elif known:
        shown, node = _cluster_and_node(arguments, known, or_run=True)
    else:
        raise ConfigError(["there are no logs: no cluster has run yet"])
    try:
        text = shown.logs(node or None, tail=_LOG_LINES).rstrip()
    except KeyError as error:
        raise ConfigError([str(error.args[0])]) from error
    where = f"(the last {_LOG_LINES} lines at most; all of them are in {shown.run_dir})"
    print(f"{text}\n{where}" if text else "the nodes have printed nothing")  # noqa: T201


def _tensorboard(arguments: Arguments) -> TensorBoardView:
    _expect(arguments, "tensorboard", at_most=1)
    found = [cluster for cluster in clusters() if not arguments or cluster.name == arguments[0]]
    if found:
        return view_cluster(found[-1])
    if not arguments:
        raise ConfigError(["no cluster has run yet: name a folder with event files, %tfos tensorboard FOLDER"])
    old = _find_run(arguments[0])
    return view_folder(arguments[0]) if old is None else view_folder(old.event_dir, old)


def _running() -> list[Cluster]:
    return [cluster for cluster in clusters() if not cluster.ended]


def _names(some: Iterable[Cluster]) -> list[str]:
    return list(dict.fromkeys(cluster.name for cluster in some))


# ---- their nodes ----------------------------------------------------------------------------------------------------


def _cluster_and_node(arguments: Arguments, known: Sequence[Cluster], *, or_run: bool = False) -> tuple[Cluster, str]:
    """Return the cluster that ``[name] [node]`` mean among those known, by default the newest, and the node or "".

    Where it could have been the name of an earlier run, too, the error says so.
    """
    named = [cluster for cluster in known if arguments and cluster.name == arguments[0]]
    rest = list(arguments[1:] if named else arguments)
    cluster = (named or known)[-1]
    nodes = [view.name for view in cluster.nodes]
    if len(rest) > 1 or (rest and rest[0] not in nodes):
        what, names = f"node in the cluster '{cluster.name}'", nodes
        if not named and (len(rest) > 1 or ":" not in rest[0]):
            kinds = {"cluster": _names(known)}
            if or_run:
                kinds["run"] = [run.name for run in read_runs().runs]
            if len(rest) == 1:
                kinds["node"] = nodes
            what = re.sub(", (?=[a-z]+$)", " or ", ", ".join(kinds))
            names = [name for some in kinds.values() for name in some]
        raise ConfigError([f"there is no {what} called {rest[0]!r}; {suggest(rest[0], names)}"])
    return cluster, "".join(rest)


def _running_and_node(arguments: Arguments, command: str) -> tuple[Cluster, str | None]:
    _expect(arguments, command, at_most=2)
    running = _running()
    if not running:
        raise ConfigError([f"no cluster is running: {_usage(command)} is about nodes that work"])
    cluster, node = _cluster_and_node(arguments, running)
    return cluster, node or None


def _names_and_nodes(finished: Arguments, known: Sequence[Cluster]) -> Iterable[str]:
    """Return what can follow in ``[name] [node]``."""
    named = [cluster for cluster in known if finished and cluster.name == finished[0]]
    if finished and not named:
        return []
    nodes = [view.name for cluster in (named or known)[-1:] for view in cluster.nodes]
    return nodes if named else [*_names(known), *nodes]


def _stacks(arguments: Arguments) -> None:
    """Print the stacks of a node, or of all, with what is known of each."""
    cluster, node = _running_and_node(arguments, "stacks")
    hung = {view.name: view.hung for view in cluster.nodes}
    for name, text in cluster.stacks(node, timeout=_STACKS_TIMEOUT_S).items():
        indented = "\n".join(f"  {line}" if line else "" for line in text.splitlines())
        print(f"{name}: {hung[name]}" if hung[name] else name, indented, "", sep="\n")  # noqa: T201


def _profile(arguments: Arguments) -> Profile:
    """Return what a node, the chief by default, spends its time on: a flame graph, and a trace for TensorBoard."""
    seconds, trace = _PROFILE_S, None
    if arguments and arguments[-1] == "trace":
        *arguments, _ = arguments
        trace = True
    if arguments:
        with contextlib.suppress(ValueError):
            seconds = float(arguments[-1].removesuffix("s"))
            *arguments, _ = arguments
    cluster, node = _running_and_node(arguments, "profile")
    return cluster.profile(node, seconds, trace=trace)


# ---- runs of this and earlier kernels -------------------------------------------------------------------------------


def show_history(arguments: Arguments) -> HistoryTable | RunPage | Comparison:
    """Show runs: all in a table, one as its cell did, several beside one another.

    The arguments are ``[ADDRESS] [A [B ...]] [last=N|all] [folder=PATH]``. ``A`` may be a label, an identifier or a
    part of it, a tag, or a pattern such as ``mnist*``; where several runs fit, they are a table. A `ConfigError` names
    what is not there.
    """
    names, given = [], {"last": str(SHOWN)}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            names.append(argument)
        elif key in ("last", "folder") and value:
            given[key] = value
        else:
            raise ConfigError([f"{argument}: the command is {_usage('history')}"])
    if given["last"] != "all" and not given["last"].isdecimal():
        raise ConfigError([f"last={given['last']}: a whole number, or all, is needed"])
    names, folder = name_place(names, given.get("folder"))
    found = read_runs(folder)
    if len(names) > 1:
        return Comparison([choose_run(name, found) for name in names])
    try:
        fit = fitting(names, found.runs)
    except NoRun:
        fit = [choose_run(names[0], found)]  # a part of a search, or a folder
    if names and len(fit) == 1:
        return RunPage(fit[0])
    return HistoryTable(found, names, None if given["last"] == "all" else int(given["last"]))


def _names_of_runs() -> list[str]:
    """Return what runs can be called, newest first: labels, and the short form of identifiers."""
    runs = read_runs().runs
    return list(dict.fromkeys([*(run.name for run in runs), *short_ids(runs).values()]))


def _find_run(name: str) -> Run | None:
    """Return the run of the history that a name means, or None; paths are for others."""
    found = read_runs()
    return choose_run(name, found) if "/" not in name and may_mean(name, found) else None


def _export(arguments: Arguments, cells: NotebookCells) -> None:
    """Write the last ``%%tfos`` cell, or those that are named, as a script; as HTML, a run."""
    if not arguments:
        raise ConfigError(["name the file to write: %tfos export FILE.py, or FILE.html for a run as a page to send"])
    target, *names = arguments
    if target.endswith(".html"):
        _expect(names, "export", at_most=1)
        found = read_runs()
        if not names and not found.runs:
            raise ConfigError(["there is nothing to export: no run has been recorded here"])
        run = choose_run(names[0], found) if names else found.runs[0]
        print(f"wrote {run.report(target)}")  # noqa: T201
        return
    if not target.endswith(".py"):
        raise ConfigError([f"{target}: the name of a script ends in .py, that of a page in .html"])
    if not names and not cells.finished:
        raise ConfigError(["there is nothing to export: run a %%tfos cell first"])
    path = write(target, cells.script(cells.numbers_of(names) if names else [max(cells.finished)]))
    print(f"wrote {path}; run it with: spark-submit {path}")  # noqa: T201


# ---- this machine and its options -----------------------------------------------------------------------------------


def _warm(arguments: Arguments) -> None:
    _expect(arguments, "warm", at_most=1)
    if list(arguments) == ["stop"]:
        print(end_warm_servers())  # noqa: T201
        return
    if arguments:
        raise ConfigError([f"{arguments[0]!r}: the command is {_usage('warm')}"])
    print(f"warming on {warm()}: the next cell there starts at once")  # noqa: T201
    if outlives_kernels() and (servers := warm_servers()):
        print(describe(servers))  # noqa: T201


def _doctor(arguments: Arguments) -> None:
    _expect(arguments, "doctor", at_most=0)
    print(render_text(examine()))  # noqa: T201


def _config(line: str, namespace: Mapping[str, Any]) -> None:
    """Set or reset defaults of options for the cells of this notebook, and print those that then hold.

    With any problem, nothing is changed.
    """
    word, *names = line.split() or [""]
    if word == "reset":
        unknown = [problem for name in names if name not in CONFIGURABLE for problem in problems_with(name, None)]
        if unknown:
            raise ConfigError(unknown)
        for name in names or list(DEFAULTS.maps[0]):
            DEFAULTS.maps[0].pop(name, None)
    else:
        DEFAULTS.update(_read_defaults(line, namespace))
    own = ((name, DEFAULTS[name]) for name in CONFIGURABLE if name in DEFAULTS)
    rows = [(name, value if isinstance(value, str) else repr(value), source_of(name)) for name, value in own]
    others = ((name, one) for name, one in CONFIGURABLE.items() if name not in DEFAULTS)
    rows += [(name, one.shown_default.replace("`", ""), "") for name, one in others]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, source in rows:
        print(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {source}".rstrip())  # noqa: T201


def _read_defaults(line: str, names: Mapping[str, Any]) -> dict[str, object]:
    keys = [item.key for item in split_line(line).items]
    problems = [problem for key in keys if key not in CONFIGURABLE for problem in problems_with(key, None)]
    if problems:
        raise ConfigError(problems)
    values, problems = read_line(line, names)
    problems += [problem for name, value in values.items() for problem in problems_with(name, value)]
    if problems:
        raise ConfigError(problems)
    return values
