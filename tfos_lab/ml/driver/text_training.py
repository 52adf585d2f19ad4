"""Trains what a `TFTextFileEstimator` asks for: models side by side, or one after another on a cluster."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tfos_lab.compat.driver.start import default_fs_of, gpus_wanted
from tfos_lab.compat.main_function import NodeSettings
from tfos_lab.core.config import ClusterConfig, ClusterOptions, FeedConfig, make_config
from tfos_lab.core.paths import absolute
from tfos_lab.core.roles import Role
from tfos_lab.data.prepare import prepare
from tfos_lab.driver.cluster import Cluster
from tfos_lab.driver.feed.request import FeedRequest
from tfos_lab.driver.feed.spark_job import ObjectRows
from tfos_lab.driver.parallel.feeder import Feed
from tfos_lab.driver.parallel.results import ParallelResults
from tfos_lab.driver.parallel.runs import ParallelRuns
from tfos_lab.driver.parallel.start import ParallelPlan, make_runs
from tfos_lab.driver.start import make_cluster
from tfos_lab.errors import ConfigError, ParallelFailed
from tfos_lab.jupyter.display import render_errors
from tfos_lab.jupyter.options import CellOptions
from tfos_lab.jupyter.parallel import run_shown
from tfos_lab.jupyter.run import run_cluster
from tfos_lab.ml.driver.text_data import TextData, read_text
from tfos_lab.ml.driver.text_results import last_metrics
from tfos_lab.ml.text_model import TrainedModel
from tfos_lab.ml.text_nodes import TextCall, run_alone, run_together
from tfos_lab.ml.text_params import require_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tfos_lab.ml.text_request import TextRequest


# ---- one cluster for one model ---------------------------------------------------------------------------------------


_NAME = "text"
_FEED_TIMEOUT_S = 600.0
_NO_CHOICE = "a node has asked for these rows as objects already, with TFNode.DataFeed: have all nodes ask alike"
_QUEUES = ("input", "output", "error")


def train_together(
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
        metrics={**last_metrics(reports, leader), **said.get("metrics", {})},
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


def train(request: TextRequest, dataset: DataFrame) -> list[TrainedModel]:
    """Train all models that are asked for; see `TFTextFileEstimator.fit`."""
    __tracebackhide__ = True
    if request.alone:
        require_rows(request.map_fun)
    _check_models(request.fit_params, needed=not request.alone)
    data = read_text(dataset, request.feature, request.label)
    call = TextCall(request.map_fun, data.facts, request.settings)
    return (_train_alone if request.alone else train_together)(call, data, request.fit_params, request.local)


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


def _train_alone(
    call: TextCall, data: TextData, fit_params: Sequence[dict[str, Any]], local: str
) -> list[TrainedModel]:
    """Train a model for each dict, as many at once as there are slots, each on all rows."""
    __tracebackhide__ = True

    def feed(cluster: Cluster) -> None:
        cluster.train(data.rows, objects=True)

    # On the nodes, a relative path would be within a folder that is removed at the end.
    sent = [{**one, "model": absolute(one["model"])} if "model" in one else one for one in fit_params]
    runs, runner = make_runs(
        partial(run_alone, call), sent, ParallelPlan(), spark=data.session, name="text", feed=feed, local=local
    )
    results = run_shown(runs, runner)
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
                metrics={**last_metrics(reports, runs.name_of(index)), **said.get("metrics", {})},
                model=said.get("model") or (below if said else ""),
                state=str(table["state"][index]),
                seconds=float(table["seconds"][index]),
                error=str(table["error"][index]),
                run_dir=str(files.path),
            )
        )
    return trained
