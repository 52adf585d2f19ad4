"""What `TFEstimator.fit` does on the driver: checks everything, runs the cluster as a cell does, keeps its model."""

from __future__ import annotations

import inspect
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

from tfos_lab.core.config import ClusterConfig, FeedConfig, FeedOptions, NodeOptions
from tfos_lab.core.options import part_of
from tfos_lab.core.threads import frames_of_threads, outwards
from tfos_lab.data.frames import is_stream, path_in_full, require_frame
from tfos_lab.data.model_files import content_of, package_of
from tfos_lab.driver.start import choose_launcher, make_cluster
from tfos_lab.errors import ClusterEnded, ClusterInterrupted, ConfigError, NotEnoughSlots
from tfos_lab.launchers.spark.slots import slots_of
from tfos_lab.ml import keras_training
from tfos_lab.ml.declared import CLUSTER_OPTIONS
from tfos_lab.ml.driver.columns import fed_columns, input_param, inputs_of
from tfos_lab.ml.driver.model_source import kept_model, stamp
from tfos_lab.ml.param_values import TrainArgs
from tfos_lab.notebook.display import Display, render_errors
from tfos_lab.notebook.options import CellOptions
from tfos_lab.notebook.run import run_cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tfos_lab.driver.cluster import Cluster
    from tfos_lab.ml.estimator import TFEstimator
    from tfos_lab.ml.model import TFModel


# ---- fits side by side -----------------------------------------------------------------------------------------------


_MODULE = "pyspark.ml.tuning"
# The method in which tuning waits for its fits, and the local name by which it and its tasks know the maps of params.
_METHOD, _MAPS = "_fit", "epm"


class Silent(Display):
    """Shows nothing."""

    def close(self) -> None:
        """Do nothing."""


class Tuning(Silent):
    """A running call of Spark's tuning, known by its thread and frame."""

    def __init__(self, thread_id: int, frame: FrameType) -> None:
        self._thread_id = thread_id
        self._frame = frame

    @property
    def is_over(self) -> bool:
        """Whether the call has returned or raised."""
        with frames_of_threads() as frames:
            return all(frame is not self._frame for frame in outwards(frames.get(self._thread_id)))

    def poll(self) -> None:
        """Interrupt the fit, as its user would, once the tuning is over."""
        if self.is_over:
            raise KeyboardInterrupt


def tuning_of_this_thread() -> Tuning | None:
    """Return the call of Spark's tuning for which this thread fits, or None if there is none."""
    task = next(filter(_is_tuning, outwards(inspect.currentframe())), None)
    if task is None or task.f_code.co_name == _METHOD:
        return None
    maps = task.f_locals[_MAPS]
    with frames_of_threads() as frames:
        for thread_id, innermost in frames.items():
            for frame in filter(_is_tuning, outwards(innermost)):
                if frame.f_code.co_name == _METHOD and frame.f_locals[_MAPS] is maps:
                    return Tuning(thread_id, frame)
    return None


def _is_tuning(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == _MODULE and _MAPS in frame.f_locals


_NAME = "TFEstimator"
# Between two looks at whether other fits have left enough of Spark's slots.
_SLOTS_STEP_S = 0.5


def fit(estimator: TFEstimator, df: DataFrame, model: TFModel) -> TFModel:
    """Train on a cluster, and return the given model with what it needs to score; see `TFEstimator`.

    If the user has interrupted it, or stopped the cluster, raises `ClusterInterrupted`; on a thread other than the main
    one a `ClusterEnded`.
    """
    __tracebackhide__ = True
    require_frame(df, "fit")
    render_errors()
    tuning = tuning_of_this_thread()
    values = estimator.all_values()
    if values["exportDir"] and (tuning is not None or estimator.is_one_of_several):
        # Each of several models gets a folder of its own.
        values["exportDir"] = f"{values['exportDir'].rstrip('/')}/{uuid.uuid4().hex[:12]}"
    for name in ("exportDir", "modelDir"):
        if values[name]:
            values[name] = path_in_full(values[name], df.sparkSession)
    options = _options(estimator, df, values)
    function, args = _call(estimator, values)
    folders = {folder: stamp(folder) for folder in (values["exportDir"], values["modelDir"]) if folder}
    # What is polled instead of the display; None has the training shown.
    quiet: Display | None = tuning
    if tuning is None and not (values["show"] and threading.current_thread() is threading.main_thread()):
        quiet = Silent()
    cluster = _run(function, args, options, quiet, tuning)
    _complete(model, estimator, cluster)
    model.setModelPath(kept_model(cluster, df.sparkSession, values["exportDir"], folders))
    return model


def _options(estimator: TFEstimator, df: DataFrame, values: Mapping[str, Any]) -> CellOptions:
    """Return what a cell would be given; a ConfigError has every problem that is found."""
    problems = _problems(estimator, df, values)
    if problems:
        raise ConfigError(problems)
    columns = fed_columns(estimator, df)
    asked = {option.name: values[name] for name, option in CLUSTER_OPTIONS.items()}
    try:
        cluster = ClusterConfig(name=_NAME, **part_of(NodeOptions, asked), cluster_size=asked["cluster_size"])
        feed = FeedConfig(columns=columns, **part_of(FeedOptions, asked))
    except ConfigError as error:
        raise ConfigError([_as_params(problem) for problem in error.problems]) from None
    return CellOptions(cluster=cluster, feed=feed, data=df, spark=df.sparkSession)


def _as_params(problem: str) -> str:
    """Return a problem of an option with the names of the params in it."""
    for name, option in CLUSTER_OPTIONS.items():
        problem = re.sub(rf"\b{option.name}\b(?=[=:\[ ])", name, problem)
    return problem


def _problems(estimator: TFEstimator, df: DataFrame, values: Mapping[str, Any]) -> list[str]:
    problems = []
    if is_stream(df):
        problems.append("fit(a streaming DataFrame): a model is fitted to rows that end; see cluster.train for streams")
    if estimator.train_fn is None and estimator.model is None:
        problems.append("there is nothing to train: give TFEstimator a train_fn(args, ctx), or model=")
    if estimator.model is None:
        return problems
    if values["numPS"]:
        problems.append(f"numPS={values['numPS']}: model= is trained by Keras' fit, without ps; give a train_fn")
    if values["evaluator"]:
        problems.append("evaluator=True: model= has nothing to run on an evaluator; give a train_fn")
    return [*problems, *_model_problems(estimator.model)]


def _model_problems(model: Any) -> list[str]:
    if package_of(model) is not None and not keras_training.is_compiled(model):
        return ["model= is not compiled; call model.compile(optimizer=..., loss=...) first"]
    if package_of(model) is None and not callable(model) and not isinstance(model, keras_training.ModelFile):
        return [f"model={type(model).__name__}: a compiled Keras model is needed, or a function that makes one"]
    if package_of(model) is None and callable(model):
        try:
            keras_training.bound(model, None)
        except (TypeError, ValueError) as error:
            return [f"model={model!r:.60}: {error}; a function of no parameters, or of one, the args, is needed"]
    return []


def _call(estimator: TFEstimator, values: Mapping[str, Any]) -> tuple[Callable[..., Any], Any]:
    """Return the function that runs on the nodes, and what it gets."""
    args = TrainArgs.of(values["args"], values)
    if estimator.train_fn is not None:
        return estimator.train_fn, args
    training = keras_training.Training(
        model=as_sent(estimator.model),
        inputs=inputs_of(estimator, input_param(estimator) or "featuresCol"),
        args=args,
        custom_objects=values["customObjects"],
    )
    return keras_training.train, training


def as_sent(model: Any) -> Any:
    """Return a Keras model as the content of a file; functions are returned as they are."""
    package = package_of(model)
    return model if package is None else keras_training.ModelFile(content_of(model), package)


# ---- running --------------------------------------------------------------------------------------------------------


def _run(
    function: Callable[..., Any], args: Any, options: CellOptions, quiet: Display | None, tuning: Tuning | None
) -> Cluster:
    __tracebackhide__ = True
    while True:
        if tuning is not None:
            _await_slots(options, tuning)
        try:
            cluster = make_cluster(function, args, spark=options.spark, config=options.cluster)
            run_cluster(cluster, function, options, quiet=quiet)
        except NotEnoughSlots as error:
            # A fit beside this one may have been quicker.
            if tuning is None or tuning.is_over or error.wanted > error.total:
                raise
        except KeyboardInterrupt:
            if threading.current_thread() is not threading.main_thread():
                # It would end a pool's thread, and the caller would wait for its result forever.
                raise ClusterEnded(cluster=_NAME, state="stopped", asked="fit a model") from None
            raise ClusterInterrupted(_NAME) from None
        else:
            return cluster


def _await_slots(options: CellOptions, tuning: Tuning) -> None:
    """Wait until other fits leave enough of Spark's task slots; return at once if there are too few in all."""
    if not choose_launcher(options.cluster, options.spark)[1].spans_hosts:
        return
    wanted = options.cluster.cluster_size - options.cluster.driver_ps * options.cluster.num_ps
    while not tuning.is_over:
        slots = slots_of(options.spark)
        if slots is None or slots.free >= wanted or slots.total < wanted:
            return
        time.sleep(_SLOTS_STEP_S)


# ---- the model ------------------------------------------------------------------------------------------------------


def _complete(model: TFModel, estimator: TFEstimator, cluster: Cluster) -> None:
    """Give a model the estimator's params and identity, and what is known of the training."""
    batch_size = model.getBatchSize()
    estimator._copyValues(model)  # noqa: SLF001 - as Spark's own estimators do
    # Rows of a step, and rows to score at once, have nothing to do with one another.
    model.clear(model.batchSize)
    model._setDefault(batchSize=batch_size)  # noqa: SLF001
    model._resetUid(estimator.uid)  # noqa: SLF001
    model.is_trusted = True
    model.run_dir, model.metrics, model.results = cluster.run_dir, cluster.metrics, cluster.results
    # What the leading node has returned, if that is a history.
    chief = next((node.name for node in cluster.nodes if node.is_chief), None)
    found = cluster.results.get(chief) if chief is not None else None
    is_history = isinstance(found, dict) and bool(found) and all(isinstance(each, list) for each in found.values())
    model.history = found if is_history else None
