"""What a `TFTextFileEstimator` asks the driver for: its rows, training, and a DataFrame of what was trained."""

from __future__ import annotations

import reprlib
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tfos_lab.compat.cluster import gpus_wanted, node_settings
from tfos_lab.core.code_archive import make_task
from tfos_lab.core.config import FeedConfig, make_config
from tfos_lab.core.paths import absolute
from tfos_lab.core.roles import Role
from tfos_lab.data.frames import is_connect, is_stream, require_frame
from tfos_lab.data.prepare import prepare
from tfos_lab.data.schema import select_columns
from tfos_lab.driver.cluster import Cluster
from tfos_lab.driver.feed.request import FeedRequest
from tfos_lab.driver.feed.spark_job import ObjectRows
from tfos_lab.driver.parallel.runs import make_runs
from tfos_lab.driver.start import make_cluster
from tfos_lab.driver.state.events import MetricsReported
from tfos_lab.errors import ConfigError, ParallelFailed
from tfos_lab.ml.params import Stage
from tfos_lab.ml.text_nodes import (
    NORMAL,
    READ_DATA,
    SIGNATURE,
    TextCall,
    name_of,
    problem_of,
    run_alone,
    run_together,
    shape_of,
    takes_rows,
)
from tfos_lab.notebook.display import render_errors
from tfos_lab.notebook.options import CellOptions
from tfos_lab.notebook.parallel import run_shown
from tfos_lab.notebook.run import run_cluster

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

_FEED_TIMEOUT_S = 600.0
_NO_CHOICE = "a node has asked for these rows as objects already, with TFNode.DataFeed: have all nodes ask alike"
_QUEUES = ("input", "output", "error")
_MOST_LONG = 1 << 63


@dataclass(frozen=True)
class TrainedModel:
    """One model, trained by one dict of `fitParam`, and how its training went.

    ``metrics`` are what the function returned, and what it reported last. ``model`` is the path where it was saved; ""
    if the function saved none, or did not say where. ``state`` is ``"done"``, or how the training ended otherwise, and
    ``error`` why it failed, in a line. ``run_dir`` has logs and output.
    """

    params: dict[str, Any]
    metrics: dict[str, float] = field(default_factory=dict)
    model: str = ""
    state: str = "done"
    seconds: float = 0.0
    error: str = ""
    run_dir: str = ""


def train(stage: Stage, dataset: DataFrame) -> list[TrainedModel]:
    """Train all models that are asked for; see `TFTextFileEstimator.fit`."""
    __tracebackhide__ = True
    values = {name: value for name, value in stage.all_values().items() if stage.isDefined(name)}
    map_fun, fit_params = values.pop("mapFnParam"), values.pop("fitParam")
    alone = values["runningMode"] == NORMAL
    if alone and not takes_rows(map_fun):
        what = f"does not take {READ_DATA}, its rows in the mode '{NORMAL}'"
        raise ConfigError([f"mapFnParam={name_of(map_fun)} {what}: {SIGNATURE}"])
    _check_models(fit_params, needed=not alone)
    frame, rows, facts = _read(dataset, values["inputCol"], values.get("labelCol"))
    call = TextCall(map_fun, facts, values)
    if alone:
        return _train_alone(call, dataset.sparkSession, rows, fit_params, values["local"])
    return [_train_together(call, frame, rows, fit_param, values["local"]) for fit_param in fit_params]


def _check_models(fit_params: Sequence[dict[str, Any]], *, needed: bool) -> None:
    problems, taken = [], dict[str, int]()
    for index, fit_param in enumerate(fit_params):
        path = fit_param.get("model")
        if path is None and needed:
            advice = "in the mode 'TFoS' it names where the model is saved, as in {'model': '/models/text'}"
            problems.append(f"fitParam[{index}] has no 'model': {advice}")
        elif path is not None and (first := taken.setdefault(path, index)) != index:
            problems.append(
                f"fitParam[{first}] and fitParam[{index}] save to the same 'model', {path}: give each its own"
            )
    if problems:
        raise ConfigError(problems)


def _read(dataset: DataFrame, feature: str, label: str | None) -> tuple[DataFrame, RDD[Any], dict[str, Any]]:
    """Check a DataFrame; return its rows as columns and as objects, and what the function gets to know of them.

    Raises ConfigError for columns that are missing, for no rows, and for a first row that cannot be used.
    """
    require_frame(dataset, "fit")
    if is_connect(dataset.sparkSession):
        raise ConfigError(
            ["TFTextFileEstimator.fit needs a classic SparkSession: with Spark Connect, use tfos_lab.run or parallel"]
        )
    if is_stream(dataset):
        raise ConfigError(["TFTextFileEstimator.fit needs all rows, and a stream has no end: give it a batch of them"])
    wanted = [feature] if label is None else [feature, label]
    select_columns(dataset.columns, wanted)
    names = [*wanted, *(name for name in dataset.columns if name not in wanted)]
    frame = dataset.select(*(f"`{name.replace('`', '``')}`" for name in names))
    first = frame.first()
    if first is None:
        raise ConfigError(["fit: the DataFrame has no rows, and there is nothing to train on"])
    if problem := problem_of(first[feature], (), feature):
        raise ConfigError([problem])
    shape = shape_of(first[feature])
    check: Any = make_task("tfos_lab.ml.text_nodes", "checked", feature, shape)
    sizes = {name: first[name] if name in names else None for name in ("vocab_size", "embedding_size")}
    if sizes["embedding_size"] is None and len(shape) > 1:
        sizes["embedding_size"] = shape[-1]
    return frame, frame.rdd.mapPartitions(check), {"feature": feature, "label": label, **sizes}


# ---- models side by side ---------------------------------------------------------------------------------------------


def _train_alone(
    call: TextCall, session: SparkSession, rows: RDD[Any], fit_params: Sequence[dict[str, Any]], local: str
) -> list[TrainedModel]:
    """Train a model for each dict, as many at once as there are slots, each on all rows."""
    __tracebackhide__ = True

    def feed(cluster: Cluster) -> None:
        cluster.train(rows, objects=True)

    # On the nodes, a relative path would be within a folder that is removed at the end.
    sent = [{**one, "model": absolute(one["model"])} if "model" in one else one for one in fit_params]
    runs = make_runs(partial(run_alone, call), sent, spark=session, name="text", feed=feed, local=local)
    results = run_shown(runs)
    if len(results.failures) == len(results):
        raise ParallelFailed(failed=results.failures.values(), results=results)
    for index, failure in results.failures.items():
        warnings.warn(f"the model of fitParam[{index}] could not be trained: {failure.summary}", stacklevel=6)
    table, (reports, _) = results.table, runs.reports_after()
    trained = []
    for index, fit_param in enumerate(sent):
        said: Mapping[str, Any] = {} if index in results.failures else results[index]
        files = runs.files_of(index)
        below = str(files.output / said["output"]) if "output" in said else fit_param.get("model", "")
        trained.append(
            TrainedModel(
                params=fit_param,
                metrics={**_last_metrics(reports, runs.name_of(index)), **said.get("metrics", {})},
                model=said.get("model") or (below if said else ""),
                state=str(table["state"][index]),
                seconds=float(table["seconds"][index]),
                error=str(table["error"][index]),
                run_dir=str(files.path),
            )
        )
    return trained


def _last_metrics(reports: Iterable[MetricsReported], node: str) -> dict[str, float]:
    """Return what a node reported last of each metric."""
    return {name: value for report in reports if report.node == node for name, value in report.metrics.items()}


# ---- one cluster for one model ---------------------------------------------------------------------------------------


def _train_together(
    call: TextCall, frame: DataFrame, rows: RDD[Any], fit_param: dict[str, Any], local: str
) -> TrainedModel:
    """Train a model on a cluster whose nodes share the rows."""
    __tracebackhide__ = True
    began_s = time.monotonic()
    session = frame.sparkSession
    config = make_config(
        name="text",
        local=local,
        cluster_size=fit_param.get("cluster_size", 1),
        num_ps=fit_param.get("num_ps", 0),
        master_node=fit_param.get("master_node"),
        tensorboard=bool(fit_param.get("tensorboard", False)),
        gpus=gpus_wanted(fit_param),
    )
    function = partial(run_together, call, node_settings(session, _QUEUES))
    cluster = make_cluster(function, fit_param, spark=session, config=config)
    # Nodes ask for rows as columns of tensors (``ctx.dataset``), or as objects (a `DataFeed`).
    columns, advice = None, _NO_CHOICE
    try:
        columns = prepare(frame, [name for name in (call.facts["feature"], call.facts["label"]) if name is not None])
    except ConfigError as error:
        advice = f"{error}; or read the rows as they are with TFNode.DataFeed(ctx.mgr, True)"
    objects = ObjectRows(rows, session, advice)

    def feed(cluster: Cluster) -> None:
        how = FeedConfig(epochs=fit_param.get("epochs", 1), feed_timeout=_FEED_TIMEOUT_S)
        source = cluster.feeding.next_source()
        cluster.feeding.feed(FeedRequest(columns, how, source=source, objects=objects))

    render_errors()
    results = run_cluster(cluster, function, CellOptions(cluster=config), feed_rows=feed) or {}
    cluster.stop()
    said: Any = next((one for name, one in results.items() if one and Role(name.partition(":")[0]).trains), {})
    leader = next((view.name for view in cluster.nodes if view.is_chief), "")
    return TrainedModel(
        params=fit_param,
        metrics={**_last_metrics(cluster.history.metrics, leader), **said.get("metrics", {})},
        model=said.get("model") or fit_param["model"],
        seconds=time.monotonic() - began_s,
        run_dir=str(cluster.run_dir),
    )


# ---- what was trained, as a DataFrame --------------------------------------------------------------------------------


def results_frame(session: SparkSession, trained: Sequence[TrainedModel]) -> DataFrame:
    """Return a DataFrame with a row for each model; see `TFTextFileModel`."""
    from pyspark.sql import types as t

    names = dict.fromkeys(name for one in trained for name in one.params)
    columns = {name: _column([one.params[name] for one in trained if name in one.params]) for name in names}
    text = t.StringType()
    schema = (
        t.StructType()
        .add("params", t.StructType([t.StructField(name, kind) for name, (kind, _) in columns.items()]))
        .add("metrics", t.MapType(text, t.DoubleType()))
        .add("model", text)
        .add("state", text)
        .add("seconds", t.DoubleType())
        .add("error", text)
        .add("run_dir", text)
    )
    rows = [
        {**vars(one), "params": {name: columns[name][1](value) for name, value in one.params.items()}}
        for one in trained
    ]
    return session.createDataFrame(rows, schema)


def _column(values: list[Any]) -> tuple[DataType, Callable[[Any], Any]]:
    """Return the type of a column for these values, and what makes a value of one of them."""
    from pyspark.sql import types as t

    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return t.BooleanType(), bool
    if kinds == {int} and all(-_MOST_LONG <= value < _MOST_LONG for value in values):
        return t.LongType(), int
    if kinds <= {int, float}:
        return t.DoubleType(), float
    return t.StringType(), lambda value: value if isinstance(value, str) else reprlib.repr(value)
