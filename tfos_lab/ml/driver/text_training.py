"""Trains what a `TFTextFileEstimator` asks for: models side by side, or one after another on a cluster."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tfos_lab.core.paths import absolute
from tfos_lab.engine.cluster import Cluster
from tfos_lab.engine.parallel.results import ParallelResults
from tfos_lab.engine.parallel.runs import ParallelRuns
from tfos_lab.engine.parallel.start import ParallelPlan, make_runs
from tfos_lab.errors import ConfigError, ParallelFailed
from tfos_lab.jupyter.parallel import run_shown
from tfos_lab.ml.driver.text_cluster import train_together
from tfos_lab.ml.driver.text_data import TextData, read_text
from tfos_lab.ml.driver.text_results import last_metrics
from tfos_lab.ml.text_model import TrainedModel
from tfos_lab.ml.text_nodes import TextCall, run_alone
from tfos_lab.ml.text_params import require_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tfos_lab.ml.text_request import TextRequest


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
