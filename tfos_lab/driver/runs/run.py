"""One run of the history: what its ``run.json`` says, and what lies in its folder."""

from __future__ import annotations

import importlib
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from tfos_lab.core import cluster_records
from tfos_lab.core.paths import is_local
from tfos_lab.core.states import NodeState, RunState
from tfos_lab.driver.logs import read_log, read_logs
from tfos_lab.driver.metrics import metrics_frame
from tfos_lab.driver.record.format import ProcessRecord, RunHeader, RunRecord, decode
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.state.events import ClusterView, MetricsReported, NodeView, RunFacts
from tfos_lab.driver.state.phases import spans_of
from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd


# The record of a run that goes on is written to its store every half minute.
_SILENT_S = 300.0
_GONE = "the kernel that ran it has gone: this is what it had written down before"


class _Notes(msgspec.Struct, frozen=True):
    """What ``notes.json`` holds."""

    tags: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Run:
    """A run that some kernel has made, now or long ago.

    Attributes
    ----------
    record : RunHeader
        What ``run.json`` says; the metrics are read when they are asked for.
    run_dir : pathlib.Path
        The run's folder.
    address : str
        Where the folder is kept, if that is a store; `run_dir` then holds copies of what has been asked for.
    written_s : float or None
        When the store's record was last written, in seconds since the epoch.
    """

    record: RunHeader
    run_dir: Path
    address: str = ""
    written_s: float | None = None

    def __repr__(self) -> str:
        return f"<Run {self.id!r}: {self.state}>"

    def _repr_html_(self) -> str:
        page: dict[str, str] = _drawing().RunPage(self)._repr_mimebundle_()
        return page["text/html"]

    @property
    def id(self) -> str:
        """Unique identifier."""
        return self.record.view.cluster_id

    @property
    def name(self) -> str:
        """The label that the user gave."""
        return self.record.view.name

    @property
    def state(self) -> RunState:
        """How the run ended; of one that has not ended, its last state, or ``lost`` where its kernel has gone."""
        state = self.record.view.state
        is_silent = self.written_s is not None and time.time() - self.written_s > _SILENT_S
        if is_silent and not state.ended:
            return RunState.LOST
        return state if state.ended or process_lives(self.record.process) is not False else RunState.LOST

    @property
    def live(self) -> bool:
        """Whether the run has not ended, as far as this machine can know."""
        return not self.state.ended

    @property
    def started_s(self) -> float:
        """When it was asked for, in seconds since the epoch."""
        return self.record.view.started_s

    @property
    def ended_s(self) -> float | None:
        """When it ended; of a lost run, when it was last heard of; None for one that goes on."""
        return self.record.view.ended_s or (self.record.written_s if self.state is RunState.LOST else None)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the cluster, as `tfos_lab.run` takes them."""
        return self.record.options

    @property
    def inputs(self) -> dict[str, Any]:
        """Numbers and short texts that its function used, such as ``"args.lr"``."""
        return self.record.inputs

    @property
    def tags(self) -> tuple[str, ...]:
        """The words that `tag` has given it."""
        return self._notes.tags

    @property
    def note_text(self) -> str:
        """What `note` has said of it."""
        return self._notes.note

    @property
    def _notes(self) -> _Notes:
        try:
            return msgspec.json.decode(RunDir(self.run_dir).notes.read_bytes(), type=_Notes)
        except (OSError, msgspec.DecodeError):
            return _Notes()

    def tag(self, *words: str) -> Run:
        """Give the run tags, such as ``"good"``, by which the history finds it; those it has stay.

        Raises
        ------
        ConfigError
            For what is no word; if they cannot be written, as for a run that is kept at an address only.
        """
        wrong = [word for word in words if not isinstance(word, str) or not word]
        if wrong:
            raise ConfigError([f"tag({word!r:.60}): words are needed, as in tag('good', 'paper')" for word in wrong])
        return self._write(_Notes(tuple(dict.fromkeys([*self.tags, *words])), self.note_text))

    def untag(self, *words: str) -> Run:
        """Take tags away again; raises what `tag` does."""
        return self._write(_Notes(tuple(word for word in self.tags if word not in words), self.note_text))

    def note(self, text: str) -> Run:
        """Say something of the run, in place of what was said before; raises what `tag` does."""
        if not isinstance(text, str):
            raise ConfigError([f"note({text!r:.60}): a text is needed; an empty one takes the note away"])
        return self._write(_Notes(self.tags, text))

    def _write(self, notes: _Notes) -> Run:
        try:
            if self.address:
                raise PermissionError(0, "what is kept at an address is read only")
            files = RunDir(self.run_dir)
            files.replace(files.notes, msgspec.json.encode(notes))
        except OSError as error:
            raise ConfigError([f"tags and notes of {self.id} cannot be written: {error.strerror}"]) from error
        return self

    @property
    def code(self) -> str:
        """The source of its function, or of its cell; empty where it is not known."""
        return self.record.code.source if self.record.code is not None else ""

    @property
    def last_metrics(self) -> dict[str, float]:
        """The last value of each metric: that of the first node which has reported it, the chief before workers.

        Of a search, the best value of what it compares, and the other metrics of its best trial.
        """
        search = self.record.view.search
        found = {} if search is None or search.best is None else {search.metric: search.best}
        for node in self.record.view.nodes:
            for name, value in node.metrics.items():
                found.setdefault(name, value)
        return found

    @property
    def metrics(self) -> pd.DataFrame:
        """What nodes have reported, as `Cluster.metrics`; a sample of at most 2,000 reports."""
        return metrics_frame(self.reports, self.started_s)

    @property
    def reports(self) -> list[MetricsReported]:
        """The same, as events; none if ``run.json`` has gone meanwhile."""
        if isinstance(self.record, RunRecord):
            return list(self.record.metrics)
        try:
            return list(decode(RunDir(self.run_dir).record.read_bytes(), RunRecord).metrics)
        except (OSError, ValueError):
            return []

    @property
    def rows(self) -> int:
        """How many rows the nodes have read, in all epochs."""
        return sum(node.rows for node in self.record.view.nodes)

    @property
    def phases(self) -> dict[str, float]:
        """The seconds that each phase took: launch, reserve, release, import, start, run, and restarts."""
        if not self.record.view.timings:
            return {}
        seconds: dict[str, float] = {}
        for span in spans_of(self.view()):
            if span.track == 0:
                seconds[span.name] = seconds.get(span.name, 0.0) + span.end_s - span.start_s
        return seconds

    @property
    def kind(self) -> str:
        """``cluster`` for the run of a single one, ``search``, or ``parallel`` for other independent runs."""
        if not self.record.view.of_runs:
            return "cluster"
        return "parallel" if self.record.view.search is None else "search"

    @property
    def best_params(self) -> dict[str, Any]:
        """The parameters of a search's best trial; empty for other runs."""
        search = self.record.view.search
        if search is None or search.best is None:
            return {}
        name = search.trial.partition(":")[0]
        best = next((node.run for node in self.record.view.nodes if node.name == name), None)
        return dict(best.params) if best is not None else {}

    @property
    def table(self) -> pd.DataFrame:
        """What became of each independent run, as a table; without rows for the run of a single cluster.

        Columns: ``run`` (int64), one for each parameter of a search (else ``args``, in short), ``best`` (float64, of
        the metric that a search compares), ``state``, ``tries`` (int64), ``seconds`` (float64), ``error`` (one line)
        and ``folder``. Trials of a search come best first.
        """
        return parts_table(self.record.view.nodes, self.folder)

    @property
    def output_dir(self) -> Path:
        """The folder with what the nodes wrote to ``ctx.output_dir``; of a store's run, it is copied here first."""
        return self.here("output")

    @property
    def folder(self) -> str:
        """The run's folder, or its address in a store."""
        return self.address or str(self.run_dir)

    def here(self, name: str) -> Path:
        """Return where a file or folder below the run's folder is on this machine; that of a store is copied first."""
        if self.address:
            from tfos_lab.driver.run_store import fetch

            fetch(f"{self.address}/{name}", self.run_dir / name)
        return self.run_dir / name

    @property
    def event_dir(self) -> str:
        """The folder with its event files, as far as this machine sees it; independent runs have theirs below it."""
        if self.record.view.of_runs:
            return self.folder
        own = RunDir(self.run_dir).events
        log_dir = str(self.options.get("log_dir") or own)
        if self.address:
            return f"{self.address}/{own.name}" if is_local(log_dir) else log_dir
        is_here = Path(log_dir).is_dir() if is_local(log_dir) else not own.is_dir()
        return log_dir if is_here else str(own)

    def view(self) -> ClusterView:
        """Return the run as displays show a cluster; of a lost one, no node goes on."""
        view, state = self.record.view, self.state
        if state is not RunState.LOST:
            return view
        nodes = (node if node.state.ended else replace(node, state=NodeState.LOST) for node in view.nodes)
        return replace(view, state=state, ended_s=self.ended_s, reason=_GONE, nodes=tuple(nodes), seconds_left=None)

    def log_path(self, node: str) -> Path:
        """Return the log file of a node, or of an independent run's last try.

        Raises
        ------
        KeyError
            If there is no such node.
        """
        parts = {one.name: one.run for one in self.record.view.nodes}
        if node not in parts:
            raise KeyError(f"no node {node!r} in the run {self.id}; there are {', '.join(parts)}")
        part = parts[node]
        below = log_of_part(part) if part is not None else None
        return self.here(str(below or RunDir(self.run_dir).log(node).name))

    def logs(self, node: str | None = None, tail: int | None = None) -> str:
        """Return what a node has written, or all nodes, as `Cluster.logs` does; raises KeyError for another node."""
        if node is not None:
            return read_log(self.log_path(node), tail)
        return read_logs({one.name: self.log_path(one.name) for one in self.record.view.nodes}, tail)

    def report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the run as one HTML file to send to somebody.

        It has the card, the curves, what nodes have shown, options, versions, code and the ends of the logs. It loads
        nothing and runs no scripts. Of absolute paths only the last name stays, and what names like ``password`` or
        ``API_KEY`` are set to is hidden; secrets in other places are yours to find.

        Parameters
        ----------
        path : path, optional
            The file, which is replaced, or a folder; by default, a file of the run's identifier in the working
            directory.

        Returns
        -------
        pathlib.Path
            The file.

        Raises
        ------
        ConfigError
            If it cannot be written.
        """
        written: Path = _drawing().write_report(self, path)
        return written


def _drawing() -> ModuleType:
    """Return a module of the notebook's part: the driver draws nothing, and works without it."""
    return importlib.import_module("tfos_lab.notebook.display.history")


def process_lives(process: ProcessRecord) -> bool | None:
    """Return whether a process is there; None where this machine cannot know, as the process is another one's."""
    if process.host != socket.gethostname():
        return None
    return bool(process.born) and cluster_records.birth_of(process.pid) == process.born


_COLUMNS = ("run", "best", "state", "tries", "seconds", "error", "folder")


def log_of_part(part: RunFacts) -> PurePosixPath | None:
    """Return the log file of a run's last try, as a path below the folder of all runs.

    None where there was none, or where the record leads elsewhere.
    """
    path = PurePosixPath(part.log)
    is_below = part.log and not path.is_absolute() and ".." not in path.parts
    return path if is_below else None


def parts_table(nodes: Sequence[NodeView], folder: str) -> pd.DataFrame:
    """Return a table with a row for each independent run, in the order of the record; see `Run.table`."""
    import pandas as pd

    found = [(node, node.run) for node in nodes if node.run is not None]
    parts = [part for _, part in found]
    logs = [log_of_part(part) for part in parts]
    names = dict.fromkeys(name for part in parts for name in part.params)
    params = {f"{name}_" if name in _COLUMNS else name: [part.params.get(name) for part in parts] for name in names}
    columns: dict[str, Any] = {
        "run": pd.Series([node.task_index for node, _ in found], dtype="int64"),
        **(params or {"args": [part.args for part in parts]}),
        "best": pd.Series([part.best for part in parts], dtype="float64"),
        "state": pd.Series([node.state for node, _ in found], dtype="string"),
        "tries": pd.Series([part.tries for part in parts], dtype="int64"),
        "seconds": pd.Series([part.seconds for part in parts], dtype="float64"),
        "error": pd.Series([node.detail for node, _ in found], dtype="string"),
        "folder": pd.Series([f"{folder}/{log.parent}" if log else None for log in logs], dtype="string"),
    }
    return pd.DataFrame(columns)
