"""What a `TFTextFileEstimator` asks the driver for: its rows, training, and a DataFrame of what was trained."""

from __future__ import annotations

import os
import reprlib
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tfos_lab.compat.driver.start import default_fs_of, gpus_wanted
from tfos_lab.compat.main_function import NodeSettings
from tfos_lab.core.code_archive import make_task
from tfos_lab.core.config import ClusterConfig, ClusterOptions, FeedConfig, make_config
from tfos_lab.core.paths import absolute
from tfos_lab.core.roles import Role
from tfos_lab.data.frames import is_connect
from tfos_lab.data.prepare import prepare
from tfos_lab.data.schema import select_columns
from tfos_lab.driver.cluster import Cluster
from tfos_lab.driver.feed.request import FeedRequest
from tfos_lab.driver.feed.spark_job import ObjectRows
from tfos_lab.driver.parallel.runs import ParallelRuns
from tfos_lab.driver.parallel.start import make_runs
from tfos_lab.driver.parallel.state import ParallelResults
from tfos_lab.driver.parallel.tries import Feed
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
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import DataType, StructType

_NAME = "text"
_FEED_TIMEOUT_S = 600.0
_NO_CHOICE = "a node has asked for these rows as objects already, with TFNode.DataFeed: have all nodes ask alike"
_QUEUES = ("input", "output", "error")
_SIZES = ("vocab_size", "embedding_size")
_MOST_LONG = 1 << 63


@dataclass(frozen=True)
class TrainedModel:
    """One model, and how its training went.

    Attributes
    ----------
    params : dict
        Its dict of `fitParam`.
    metrics : dict of str to float
        What the function returned, and what it reported last.
    model : str
        The path where it was saved; "" if the function saved none, or did not say where.
    state : str
        ``"done"``, or how the training ended otherwise.
    seconds : float
        How long it took.
    error : str
        Why it failed, in a line.
    run_dir : str
        The folder with logs and output.
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
    data = _read(dataset, values["inputCol"], values.get("labelCol"))
    call = TextCall(map_fun, data.facts, values)
    return (_train_alone if alone else _train_together)(call, data, fit_params, values["local"])


def _check_models(fit_params: Sequence[dict[str, Any]], *, needed: bool) -> None:
    problems, taken = [], dict[str, int]()
    for index, fit_param in enumerate(fit_params):
        path = fit_param.get("model")
        if path is None and needed:
            advice = "in the mode 'TFoS' it names where the model is saved, as in {'model': '/models/text'}"
            problems.append(f"fitParam[{index}] has no 'model': {advice}")
        elif path is not None and path in taken:
            problems.append(
                f"fitParam[{taken[path]}] and fitParam[{index}] save to the same 'model', {path}: give each its own"
            )
        elif path is not None:
            taken[path] = index
    if problems:
        raise ConfigError(problems)


# ---- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextData:
    """Rows to train on, as columns and as objects, and what the function is told of them."""

    frame: DataFrame
    rows: RDD[Any]
    facts: Mapping[str, Any]

    @property
    def session(self) -> SparkSession:
        """The DataFrame's own."""
        return self.frame.sparkSession


def _read(dataset: DataFrame, feature: str, label: str | None) -> TextData:
    """Check a DataFrame, and return its rows.

    Raises
    ------
    ConfigError
        For columns that are missing, for no rows, and for a first row that is no good.
    """
    if not hasattr(dataset, "mapInArrow"):
        raise ConfigError([f"fit: a Spark DataFrame is needed, not a {type(dataset).__name__}"])
    if is_connect(dataset.sparkSession):
        raise ConfigError(
            ["TFTextFileEstimator.fit needs a classic SparkSession: with Spark Connect, use tfos_lab.run or parallel"]
        )
    if dataset.isStreaming:
        raise ConfigError(["TFTextFileEstimator.fit needs all rows, and a stream has no end: give it a batch of them"])
    wanted = [feature] if label is None else [feature, label]
    select_columns(dataset.columns, wanted)
    frame = _select(dataset, [*wanted, *(name for name in dataset.columns if name not in wanted)])
    first = frame.first()
    if first is None:
        raise ConfigError(["fit: the DataFrame has no rows, and there is nothing to train on"])
    if problem := problem_of(first[feature], (), feature):
        raise ConfigError([problem])
    shape = shape_of(first[feature])
    check: Any = make_task("tfos_lab.ml.text_nodes", "checked", feature, shape)
    rows = frame.rdd.mapPartitions(check)
    return TextData(frame, rows, {"feature": feature, "label": label, **_sizes(first, shape)})


def _select(dataset: DataFrame, names: list[str]) -> DataFrame:
    quoted = [f"`{name.replace('`', '``')}`" for name in names]
    return dataset.select(*quoted)


def _sizes(first: Row, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return what the first row says of the sizes of vocabulary and word vectors."""
    found = {name: first[name] if name in first.__fields__ else None for name in _SIZES}
    if found["embedding_size"] is None and len(shape) > 1:
        found["embedding_size"] = shape[-1]
    return found


# ---- models side by side ---------------------------------------------------------------------------------------------


def _train_alone(
    call: TextCall, data: TextData, fit_params: Sequence[dict[str, Any]], local: str
) -> list[TrainedModel]:
    """Train a model for each dict, as many at once as there are slots, each on all rows."""
    __tracebackhide__ = True

    def feed(cluster: Cluster) -> None:
        cluster.train(data.rows, objects=True)

    # On the nodes, a relative path would be within a folder that is removed at the end.
    sent = [{**one, "model": absolute(one["model"])} if "model" in one else one for one in fit_params]
    runs = make_runs(partial(run_alone, call), sent, spark=data.session, name="text", feed=feed, local=local)
    results = run_shown(runs)
    if len(results.failures) == len(results):
        raise ParallelFailed(failed=results.failures.values(), results=results)
    for index, failure in results.failures.items():
        warnings.warn(f"the model of fitParam[{index}] could not be trained: {failure.summary}", stacklevel=6)
    return _trained(runs, results, sent)


def _trained(runs: ParallelRuns, results: ParallelResults, fit_params: Sequence[dict[str, Any]]) -> list[TrainedModel]:
    table, (reports, _) = results.table, runs.reports_after()
    trained = []
    for index, fit_param in enumerate(fit_params):
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
    call: TextCall, data: TextData, fit_params: Sequence[dict[str, Any]], local: str
) -> list[TrainedModel]:
    """Train a model for each dict, one after another, each on a cluster of its own."""
    __tracebackhide__ = True
    return [_train(call, data, fit_param, local) for fit_param in fit_params]


def _train(call: TextCall, data: TextData, fit_param: dict[str, Any], local: str) -> TrainedModel:
    __tracebackhide__ = True
    began_s = time.monotonic()
    node = NodeSettings(default_fs_of(data.session), os.getcwd(), _QUEUES, release_port=True)  # noqa: PTH109 - a string
    config = make_config(**_options(fit_param, local))
    function = partial(run_together, call, node)
    cluster = make_cluster(function, fit_param, spark=data.session, config=config)
    render_errors()
    results = _said(cluster, function, config, partial(_feed, data, fit_param.get("epochs", 1)))
    said: dict[str, Any] = next((one for one in results.values() if one), {})
    leader = next((view.name for view in cluster.nodes if view.is_chief), "")
    reports = cluster.history.metrics
    return TrainedModel(
        params=fit_param,
        metrics={**_last_metrics(reports, leader), **said.get("metrics", {})},
        model=said.get("model") or fit_param["model"],
        seconds=time.monotonic() - began_s,
        run_dir=str(cluster.run_dir),
    )


def _options(fit_param: dict[str, Any], local: str) -> ClusterOptions:
    options: ClusterOptions = {
        "name": _NAME,
        "local": local,
        "cluster_size": fit_param.get("cluster_size", 1),
        "num_ps": fit_param.get("num_ps", 0),
        "master_node": fit_param.get("master_node"),
        "tensorboard": bool(fit_param.get("tensorboard", False)),
    }
    if (gpus := gpus_wanted(fit_param)) is not None:
        options["gpus"] = gpus
    return options


def _said(cluster: Cluster, function: Callable[..., Any], config: ClusterConfig, feed_rows: Feed) -> dict[str, Any]:
    """Run a cluster to its end, and return what the nodes that train have said."""
    __tracebackhide__ = True
    results = run_cluster(cluster, function, CellOptions(cluster=config), feed_rows=feed_rows) or {}
    cluster.stop()
    return {node: one for node, one in results.items() if Role(node.partition(":")[0]).trains}


def _feed(data: TextData, epochs: int, cluster: Cluster) -> None:
    feeding = cluster.feeding
    feeding.feed(_request(data, epochs, feeding.next_source()))


def _request(data: TextData, epochs: int, source: int) -> FeedRequest:
    """Return rows that go as objects to a `DataFeed`, and as columns of tensors to ``ctx.dataset``: as nodes ask."""
    names = [name for name in (data.facts["feature"], data.facts["label"]) if name is not None]
    frame, advice = None, _NO_CHOICE
    try:
        frame = prepare(data.frame, names)
    except ConfigError as error:
        advice = f"{error}; or read the rows as they are with TFNode.DataFeed(ctx.mgr, True)"
    objects = ObjectRows(data.rows, data.session, advice)
    return FeedRequest(frame, FeedConfig(epochs=epochs, feed_timeout=_FEED_TIMEOUT_S), source=source, objects=objects)


# ---- what was trained, as a DataFrame --------------------------------------------------------------------------------


def results_frame(session: SparkSession, trained: Sequence[TrainedModel]) -> DataFrame:
    """Return a DataFrame with a row for each model; see `TFTextFileModel`."""
    from pyspark.sql import types as t

    params = _params_type([one.params for one in trained])
    text = t.StringType()
    schema = t.StructType(
        [
            t.StructField("params", params),
            t.StructField("metrics", t.MapType(text, t.DoubleType())),
            t.StructField("model", text),
            t.StructField("state", text),
            t.StructField("seconds", t.DoubleType()),
            t.StructField("error", text),
            t.StructField("run_dir", text),
        ]
    )
    rows = [{**asdict(one), "params": _values(one.params, params)} for one in trained]
    return session.createDataFrame(rows, schema)


def _params_type(params: Sequence[dict[str, Any]]) -> StructType:
    """Return a type with a field for each key of any of the dicts."""
    from pyspark.sql import types as t

    names = dict.fromkeys(name for one in params for name in one)
    return t.StructType([t.StructField(name, _type_of([one[name] for one in params if name in one])) for name in names])


def _type_of(values: list[Any]) -> DataType:
    from pyspark.sql import types as t

    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return t.BooleanType()
    if kinds == {int} and all(-_MOST_LONG <= value < _MOST_LONG for value in values):
        return t.LongType()
    return t.DoubleType() if kinds <= {int, float} else t.StringType()


def _values(params: dict[str, Any], schema: StructType) -> dict[str, Any]:
    """Return the values of a dict as the type has them: anything that is no number or text in short."""
    return {field.name: _value(params[field.name], field.dataType) for field in schema if field.name in params}


def _value(value: Any, kind: DataType) -> Any:
    if kind.typeName() == "string":
        return value if isinstance(value, str) else reprlib.repr(value)
    return float(value) if kind.typeName() == "double" else value
