"""Checks what `tfos_lab.run_script` is asked for, and makes the run; nothing is started yet."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_lab.core.config import ClusterConfig, FeedConfig, FeedOptions, NodeOptions, RunOptions
from tfos_lab.core.launchers import launcher_for
from tfos_lab.core.options import given_options, part_of
from tfos_lab.driver.feed.files.source import is_table, text_of
from tfos_lab.driver.feed.request import check_rows
from tfos_lab.driver.script.nodes import ONE_WORKER, NodeCounts, plan_nodes
from tfos_lab.driver.script.run import ScriptRun, Versions
from tfos_lab.driver.script.source import read_script
from tfos_lab.driver.start import make_cluster
from tfos_lab.errors import ConfigError, NoSession
from tfos_lab.launchers.spark.session import active_session
from tfos_lab.node.script import SentScript, run_sent_script
from tfos_lab.texts import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA_FORMATS = ("parquet", "json", "arrow")

_lock = threading.Lock()
_runs: list[ScriptRun] = []


def make_script_run(
    path: str | os.PathLike[str],
    nodes: Sequence[Mapping[str, Any]] = ONE_WORKER,
    *,
    data: Any = None,
    function: str | None = None,
    files: Sequence[str] = (),
    keep_versions: int | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    data_format: str = "parquet",
    spark: SparkSession | None = None,
    name: str | None = None,
    options: RunOptions,
) -> ScriptRun:
    """Check what `tfos_lab.run_script` is asked for, and return a run that is not started yet."""
    source = read_script(path, function=function, files=files)
    plan = plan_nodes(nodes)
    given = [count for count in NodeCounts.__annotations__ if count in options]
    problems = [f"{count}: the list of nodes says which there are; leave it out" for count in given]
    if data_format not in DATA_FORMATS:
        problems.append(f"data_format={data_format!r}: use one of {', '.join(DATA_FORMATS)}")
    if plan.reads_data and data is None:
        problems.append("nodes: a parameter names {data_dir}, but there is no data: give data=...")
    if problems:
        raise ConfigError(problems)
    asked = given_options(RunOptions, "run_script", options)
    feed = FeedConfig(**part_of(FeedOptions, asked))
    config = ClusterConfig(**plan.options, **part_of(NodeOptions, asked), name=name or _free_name(source.path.stem))
    launcher = launcher_for(config.local)
    if launcher is not None and launcher.runs_inline:
        advice = "use local='processes', and import its function to debug it here"
        raise ConfigError(
            [f"local={config.local!r}: {source.path.name} becomes the main program of a process; {advice}"]
        )
    spark = spark or getattr(data, "sparkSession", None)
    data = _checked_rows(data, feed, spark)
    versions = None
    if output_dir is not None or keep_versions is not None:
        versions = Versions(output_dir or Path("output") / source.path.stem, keep_versions)
    sent = SentScript(
        home=str(source.path.parent),
        name=source.path.name,
        files=source.files,
        params=plan.params,
        function=function,
        data_format=data_format,
    )
    cluster = make_cluster(run_sent_script, sent, spark=spark, config=config, chief_stays_here=False)
    run = ScriptRun(cluster, source.path, data=data, feed=feed, versions=versions)
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
    names = (stem, *(f"{stem}-{number}" for number in range(2, len(taken) + 2)))
    return next(name for name in names if name not in taken)


def _checked_rows(data: Any, feed: FeedConfig, spark: SparkSession | None) -> Any:
    """Return what `Cluster.train` takes; a table may be of any kind that Spark reads."""
    if not is_table(data):
        return check_rows(data, feed.columns, spark, objects=feed.objects)
    session = spark or active_session()
    if session is None:
        reason = f"{text_of(data)}: there is no such file, and no SparkSession that knows a table of this name"
        raise NoSession(reason=reason, for_rows=True)
    try:
        return session.table(data)
    except Exception as error:
        raise ConfigError([f"{text_of(data)} cannot be read: {first_line(error)}"]) from error
