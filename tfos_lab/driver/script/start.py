"""Checks what `tfos_lab.run_script` is asked for, and makes the run; nothing is started yet."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_lab.core.config import ClusterConfig, FeedConfig, FeedOptions, NodeOptions, RunOptions
from tfos_lab.core.launchers import launcher_for
from tfos_lab.core.options import given_options, part_of
from tfos_lab.driver.script.nodes import ONE_WORKER, NodeCounts, NodePlan, plan_nodes
from tfos_lab.driver.script.run import ScriptRows, ScriptRun
from tfos_lab.driver.script.source import ScriptSource, read_script
from tfos_lab.driver.script.versions import Versions
from tfos_lab.driver.start import make_cluster
from tfos_lab.errors import ConfigError, NoSession
from tfos_lab.launchers.spark.session import active_session
from tfos_lab.node.script.program import SentScript, run_sent_script
from tfos_lab.texts import first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


DATA_FORMATS = ("parquet", "json", "arrow")
_OUTPUT = "output"

_lock = threading.Lock()
_runs: list[ScriptRun] = []


@dataclass(frozen=True, kw_only=True)
class ScriptRequest:
    """What `tfos_lab.run_script` is asked for; see there."""

    path: str | os.PathLike[str]
    nodes: Sequence[Mapping[str, Any]] = ONE_WORKER
    data: Any = None
    function: str | None = None
    files: Sequence[str] = ()
    keep_versions: int | None = None
    output_dir: str | os.PathLike[str] | None = None
    data_format: str = "parquet"
    spark: SparkSession | None = None
    name: str | None = None


def make_script_run(request: ScriptRequest, options: RunOptions) -> ScriptRun:
    """Check everything, and return a run that is not started yet.

    Raises
    ------
    ConfigError, NoSession, PayloadError, NotEnoughRoom
        For what cannot work.
    """
    source = read_script(request.path, function=request.function, files=request.files)
    plan = plan_nodes(request.nodes)
    _require_sense(request, plan, options)
    asked = given_options(RunOptions, "run_script", options)
    feed = FeedConfig(**part_of(FeedOptions, asked))
    name = request.name or _free_name(source.path.stem)
    config = ClusterConfig(**plan.options, **part_of(NodeOptions, asked), name=name)
    _require_processes(config, source)
    spark = request.spark or getattr(request.data, "sparkSession", None)
    data = open_rows(request.data, spark)
    versions = _versions_of(request, source)
    cluster = make_cluster(
        run_sent_script, _sent(request, source, plan), spark=spark, config=config, chief_stays_here=False
    )
    rows = None if data is None else ScriptRows(data, feed)
    run = ScriptRun(cluster, source.path, rows=rows, versions=versions)
    with _lock:
        _runs.append(run)
    return run


def script_runs() -> list[ScriptRun]:
    """Return all script runs of this process, oldest first, ended ones included."""
    with _lock:
        return list(_runs)


def _free_name(stem: str) -> str:
    """Return the script's name, with a number where another run of it goes on."""
    taken = {run.name for run in script_runs() if not run.ended}
    return next(name for number in range(1, len(taken) + 2) if (name := _numbered(stem, number)) not in taken)


def _numbered(stem: str, number: int) -> str:
    return stem if number == 1 else f"{stem}-{number}"


def _require_sense(request: ScriptRequest, plan: NodePlan, options: RunOptions) -> None:
    counted = [name for name in NodeCounts.__annotations__ if name in options]
    problems = [f"{name}: the list of nodes says which there are; leave it out" for name in counted]
    if request.data_format not in DATA_FORMATS:
        problems.append(f"data_format={request.data_format!r}: use one of {', '.join(DATA_FORMATS)}")
    if plan.reads_data and request.data is None:
        problems.append("nodes: a parameter names {data_dir}, but there is no data: give data=...")
    if problems:
        raise ConfigError(problems)


def _require_processes(config: ClusterConfig, source: ScriptSource) -> None:
    launcher = launcher_for(config.local)
    if launcher is not None and launcher.runs_inline:
        advice = "use local='processes', and import its function to debug it here"
        raise ConfigError(
            [f"local={config.local!r}: {source.path.name} becomes the main program of a process; {advice}"]
        )


def _versions_of(request: ScriptRequest, source: ScriptSource) -> Versions | None:
    """Return where the output is kept, if versions were asked for."""
    if request.output_dir is None and request.keep_versions is None:
        return None
    return Versions.make(request.output_dir or Path(_OUTPUT) / source.path.stem, request.keep_versions)


def _sent(request: ScriptRequest, source: ScriptSource, plan: NodePlan) -> SentScript:
    return SentScript(
        home=str(source.path.parent),
        name=source.path.name,
        files=source.files,
        params=plan.params,
        function=request.function,
        data_format=request.data_format,
    )


_FORMATS = {
    ".parquet": ("parquet", {}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".csv": ("csv", {"header": "true", "inferSchema": "true"}),
    ".orc": ("orc", {}),
}
_TFRECORDS = (".tfrecord", ".tfrecords")
# A name, with its database and catalog perhaps; a file of such a name that is there comes first.
_TABLE = re.compile(r"[A-Za-z_]\w*(\.\w+){0,2}")


def open_rows(data: Any, spark: SparkSession | None = None) -> Any:
    """Return what `Cluster.train` takes: ``data`` itself, or the DataFrame of the files that it names.

    Parameters
    ----------
    data : DataFrame, arrays, str, path-like, or sequence of str
        A path or pattern (its end says the format; Parquet by default), several of them, or the name
        of a table.

    Raises
    ------
    ConfigError
        If the files cannot be read.
    NoSession
        If files are named and no session can read them.
    """
    paths = _paths_in(data)
    if not paths:
        return data
    session = spark or active_session()
    if session is None:
        raise NoSession(reason=f"data={paths[0]!r} is read by Spark, but there is no SparkSession", for_rows=True)
    try:
        return _read(session, paths)
    except Exception as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError([f"data={data!r} cannot be read: {first_line(error)}"]) from error


def _paths_in(data: Any) -> list[str]:
    if isinstance(data, str | os.PathLike):
        return [os.fspath(data)]
    if isinstance(data, Sequence) and data and all(isinstance(one, str | os.PathLike) for one in data):
        return [os.fspath(one) for one in data]
    return []


def _read(session: SparkSession, paths: list[str]) -> DataFrame:
    first = paths[0]
    if _TABLE.fullmatch(first) and not first.endswith((*_FORMATS, *_TFRECORDS)) and not Path(first).exists():
        return session.table(first)
    ending = os.path.splitext(first.rstrip("/*"))[1].lower()  # noqa: PTH122 - also addresses such as hdfs://…
    if ending in _TFRECORDS:
        from tfos_lab.data.tfrecords.tables import read_tfrecords

        return read_tfrecords(session, first if len(paths) == 1 else ",".join(paths))
    name, options = _FORMATS.get(ending, _FORMATS[".parquet"])
    return session.read.format(name).options(**options).load(paths)
