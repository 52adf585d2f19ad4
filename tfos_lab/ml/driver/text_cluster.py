"""Trains a text estimator's model on a cluster of nodes that share the rows, and shows it meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tfos_lab.compat.driver.start import default_fs_of, gpus_wanted
from tfos_lab.compat.main_function import NodeSettings
from tfos_lab.core.config import ClusterConfig, ClusterOptions, FeedConfig, make_config
from tfos_lab.core.roles import Role
from tfos_lab.data.prepare import prepare
from tfos_lab.engine.cluster import Cluster
from tfos_lab.engine.feed.request import FeedRequest
from tfos_lab.engine.feed.spark_job import ObjectRows
from tfos_lab.engine.parallel.feeder import Feed
from tfos_lab.engine.start import make_cluster
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.display import render_errors
from tfos_lab.jupyter.options import CellOptions
from tfos_lab.jupyter.run import run_cluster
from tfos_lab.ml.driver.text_data import TextData
from tfos_lab.ml.driver.text_results import last_metrics
from tfos_lab.ml.text_model import TrainedModel
from tfos_lab.ml.text_nodes import TextCall, run_together

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
