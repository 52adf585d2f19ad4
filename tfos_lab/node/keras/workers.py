"""Makes Keras 3 train on several workers.

Keras 3 cannot `fit` under `tf.distribute.MultiWorkerMirroredStrategy`. Before the first step it averages a whole batch
over the workers to find its shapes; after each step it averages the metrics along an axis that scalars do not have.
`patch_keras()` replaces both functions.

The first replacement also prepares the end of an epoch whose length is not known yet: each batch is fetched before its
step begins (`FetchedBatches`). `keras_3` and `tf_keras` make N nodes report the numbers that one process would.

The fork server patches once, before it forks.
"""
# ruff: noqa: SLF001 - what is patched is private

from __future__ import annotations

import functools
import logging
import math
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tfos_lab.data.schema import WEIGHT_KEY
from tfos_lab.errors import ConfigError, FeedError
from tfos_lab.node.activity.fetches import patch_once
from tfos_lab.node.activity.steps import FITS, STEPS
from tfos_lab.node.keras.adapting import patch_adapt, warn_of_different_layers
from tfos_lab.node.keras.all_reduce import metrics_over_replicas
from tfos_lab.node.keras.distribute import (
    LOOP_OR_NO_SERVERS,
    is_across_workers,
    length_of_epoch,
    patch_strategy,
    tell_of_own_statistics,
    why_fit_would_hang,
    without_jit,
)
from tfos_lab.node.keras.keras_3 import FetchedBatches, count_rows, patch_keras_3
from tfos_lab.node.keras.presharded import (
    is_presharded,
    is_statically_shaped,
    presharded_of,
)
from tfos_lab.node.keras.row_counts import mode_of
from tfos_lab.node.keras.tf_keras import patch_tf_keras
from tfos_lab.node.keras.versions import is_none_spec, keras_3_trainer, misfit
from tfos_lab.node.keras.whole_data import divide, has_of_keras, patch_iterators

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

logger = logging.getLogger(__name__)

_UNBUILT = (
    "on several nodes, the variables of a model must exist before its first step, and {kind}, whose step is your own, "
    "cannot be called with a batch as it comes: call it, or its layers, with a batch before `fit`, under "
    "ctx.strategy().scope()"
)
_CALLBACKS = ("keras.src.callbacks.callback_list", "tf_keras.src.callbacks")


def patch_keras() -> None:
    """Make the loaded Keras 3 train on several workers; safe to call twice, and before a fork.

    It runs no TensorFlow op and touches no device. Call it after importing `tensorflow` and `keras`. It also patches
    the strategy for the rows of a feed (`mark_as_presharded`), for every Keras and for custom loops.
    """
    patch_strategy()
    patch_adapt()
    _patch_fits()
    patch_tf_keras()
    trainer: Any = keras_3_trainer()
    if trainer is None or misfit("keras"):
        return
    patch_once(trainer.TensorFlowTrainer, "_maybe_symbolic_build", _build_from_specs)
    patch_once(trainer.TensorFlowTrainer, "predict_on_batch", _on_this_worker)
    patch_once(trainer, "reduce_per_replica", _reduce_across_workers)
    # Of the base itself: Keras does not compile what it loads where a model's `compile` is not that.
    base = sys.modules["keras.src.trainers.trainer"].Trainer
    patch_once(base, "compile", without_jit)
    patch_once(base, "get_metrics_result", _as_tensors)
    patch_iterators(trainer)
    patch_keras_3(trainer)


# ---- before the first step ------------------------------------------------------------------------------------------


def _build_from_specs(build: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(build)
    def _maybe_symbolic_build(model: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        import tensorflow as tf

        strategy = model._distribute_strategy
        if isinstance(strategy, tf.distribute.ParameterServerStrategy):
            # Keras 2 sends the dataset to the workers, which rows of a feed cannot be.
            is_fed = iterator is not None and is_presharded(getattr(iterator.data_adapter, "_dataset", None))
            way = "" if is_fed else "use Keras 2 (env={'TF_USE_LEGACY_KERAS': '1'}), "
            raise ConfigError([f"Keras 3 has no `fit` with parameter servers: {way}{LOOP_OR_NO_SERVERS}"])
        if iterator is None:
            count_rows(model, None)
            return build(model, iterator=iterator, data_batch=data_batch)
        across = is_across_workers(strategy)
        validates = iterator is getattr(model, "_eval_epoch_iterator", None)
        if not validates:
            FITS.has_arrays = type(iterator.data_adapter).__name__ == "ArrayDataAdapter"
        if across:
            _force_single_steps(model, iterator)
            if not validates:
                tell_of_own_statistics(model)
                warn_of_different_layers(model)
        dataset = getattr(iterator.data_adapter, "_dataset", None)
        has_fed_rows = dataset is not None and is_presharded(dataset)
        rows = divide(model, iterator) if across else dataset if has_fed_rows else None
        count_rows(model, mode_of(rows, strategy))
        if across and not iterator.steps_per_epoch and (why := why_fit_would_hang(iterator._distributed_dataset)):
            raise FeedError(reason=why)
        if has_fed_rows:
            _refuse_rows_without_label(model, dataset)
            _refuse_single_values(model, dataset)
            _prepare_end(iterator)
        if strategy is None or not (has_fed_rows or across):
            return build(model, iterator=iterator, data_batch=data_batch)
        return _build_from_example(build, model, _example_of(iterator, strategy))

    return _maybe_symbolic_build


def _build_from_example(build: Callable[..., Any], model: Any, batch: Any) -> Any:
    """Build a model; where its steps are the user's, the model itself may not take their batches."""
    try:
        return build(model, data_batch=batch)
    except Exception as error:
        if has_of_keras(model, "train_step", "test_step"):
            raise
        if not all(layer.built for layer in model._flatten_layers(include_self=False)):
            raise ConfigError([_UNBUILT.format(kind=type(model).__name__)]) from error
    if model.optimizer is not None and not model.optimizer.built:
        with model.distribute_strategy.scope():
            model.optimizer.build(model.trainable_variables)
    return None


def _refuse_rows_without_label(model: keras.Model, dataset: tf.data.Dataset) -> None:
    """Raise where Keras' own step compares with labels and there are none: it says "None values not supported" itself.

    A model's own step takes batches as it likes.
    """
    compares = has_of_keras(model, "train_step", "test_step", "compute_loss") and model._compile_loss is not None
    if not compares or not isinstance(dataset.element_spec, dict):
        return
    columns = [name for name in dataset.element_spec if name != WEIGHT_KEY]
    example = repr(columns[-1]) if len(columns) > 1 else "..."
    advice = f"name the column to learn, as in ctx.dataset(64, label={example})"
    raise ConfigError([f"the model has a loss, and its rows ({', '.join(columns)}) have no label: {advice}"])


def _refuse_single_values(model: keras.Model, dataset: tf.data.Dataset) -> None:
    """Raise where a column of numbers is given to a model of several inputs: TensorFlow would fold rows into one."""
    rows = dataset.element_spec[0] if isinstance(dataset.element_spec, tuple) else None
    functional = getattr(model, "_functional", model)  # a Sequential that is not built yet has none, and no inputs
    inputs = getattr(functional, "inputs", None) or []
    wanted = [tuple(one.shape[1:]) for one in inputs]
    shape = getattr(rows, "shape", None)  # several columns are a dict
    is_single = shape is not None and shape.rank == 1
    if is_single and len(wanted) == 1 and len(wanted[0]) == 1 and wanted[0][0] not in (1, None):
        reason = f"the model takes rows of {wanted[0][0]} values, and the column that it is given has one value per row"
        raise ConfigError(
            [f"{reason}: give it a column of arrays, as F.array(...) or Spark's VectorAssembler makes it"]
        )


def _prepare_end(iterator: Any) -> None:
    """Let all workers take the same number of steps, and let Keras expect the end of the feed.

    Where the end is not known, each batch is fetched before its step begins.
    """
    import tensorflow as tf

    adapter, dataset = iterator.data_adapter, iterator._distributed_dataset
    if not iterator.steps_per_epoch:
        length = length_of_epoch(dataset)
        if length is not None and adapter.num_batches is None:
            # Another worker knows the length already: show the same progress on all.
            adapter._dataset = adapter._dataset.apply(tf.data.experimental.assert_cardinality(length))
        iterator._interrupted_warning = lambda: None
    is_open = iterator.steps_per_execution == 1 and adapter.num_batches is None
    if is_open and (is_statically_shaped(dataset) or presharded_of(adapter._dataset) is not None):
        iterator._get_iterator = lambda: FetchedBatches(dataset)


def _force_single_steps(model: keras.Model, iterator: Any) -> None:
    if model.steps_per_execution > 1:
        logger.warning(
            "steps_per_execution=%d is taken as 1: TensorFlow cannot loop over steps of several workers in Keras 3.",
            model.steps_per_execution,
        )
        model.steps_per_execution = iterator.steps_per_execution = 1


def _example_of(iterator: Any, strategy: tf.distribute.Strategy) -> Any:
    """Return an example of one replica's batch.

    Keras needs only shapes and dtypes. If the dataset declares them, no batch is fetched: it would be lost for the
    training, and would start the whole pipeline.
    """
    import tensorflow as tf

    specs = tf.nest.map_structure(_spec_of_one_replica, iterator._distributed_dataset.element_spec)
    if all(spec is None or _describes_rows(spec) for spec in tf.nest.flatten(specs)):
        return specs
    _, _, batches = next(iter(iterator))
    return tf.nest.map_structure(lambda value: _on_first_replica(strategy, value), next(batches))


def _spec_of_one_replica(spec: Any) -> Any:
    spec = getattr(spec, "_value_specs", (spec,))[0]
    return None if is_none_spec(spec) else spec


def _describes_rows(spec: Any) -> bool:
    """Whether everything but the number of rows is known."""
    rank = spec.shape.rank
    return rank is not None and (rank == 0 or spec.shape[1:].is_fully_defined())


def _on_this_worker(predict: Callable[..., Any]) -> Callable[..., Any]:
    """Have each worker predict its own batch: Keras would wait for the others, and return the predictions of all."""

    @functools.wraps(predict)
    def predict_on_batch(model: keras.Model, x: Any) -> Any:
        if not is_across_workers(model.distribute_strategy):
            return predict(model, x)
        import tensorflow as tf

        trainer: Any = keras_3_trainer()
        with model.distribute_strategy.scope():  # a model that is not built yet makes its variables
            predictions = model.predict_step((x,))
        return tf.nest.map_structure(trainer.convert_to_np_if_not_ragged, predictions)

    return predict_on_batch


# ---- after each step ------------------------------------------------------------------------------------------------


def _reduce_across_workers(reduce: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reduce)
    def reduce_per_replica(values: Any, strategy: tf.distribute.Strategy, reduction: str) -> Any:
        across = {"auto": "MEAN", "mean": "MEAN", "sum": "SUM"}.get(reduction)
        if across is None or not is_across_workers(strategy):
            return reduce(values, strategy, reduction)
        if reduction == "auto" and (results := metrics_over_replicas(strategy, values)) is not None:
            return results
        return _reduce_together(values, strategy, across)

    return reduce_per_replica


def _as_tensors(get: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap what returns the results of metrics: a user's may be a variable, which the history would keep."""

    @functools.wraps(get)
    def get_metrics_result(model: keras.Model) -> Any:
        import tensorflow as tf

        in_scope = sys.modules["keras"].ops.convert_to_tensor

        def as_tensor(result: Any) -> Any:
            return tf.convert_to_tensor(in_scope(result)) if hasattr(result, "assign") else result

        return tf.nest.map_structure(as_tensor, get(model))

    return get_metrics_result


def _reduce_together(values: Any, strategy: tf.distribute.Strategy, how: str) -> Any:
    """Reduce a structure over all replicas; its scalars, which are the metrics, are sent as one vector."""
    import tensorflow as tf

    flat = tf.nest.flatten(values)
    firsts = [_on_first_replica(strategy, value) for value in flat]
    is_metric = [tf.is_tensor(one) and one.dtype == tf.float32 and one.shape.rank == 0 for one in firsts]
    metrics = [value for value, is_one in zip(flat, is_metric, strict=True) if is_one]
    reduced: Iterator[Any] = iter(())
    if metrics:
        vector = strategy.run(lambda *scalars: tf.stack(scalars), args=metrics)
        reduced = iter(tf.unstack(strategy.reduce(how, vector, axis=None), num=len(metrics)))
    flat = [
        next(reduced) if is_one else strategy.reduce(how, value, axis=None)
        for value, is_one in zip(flat, is_metric, strict=True)
    ]
    return tf.nest.pack_sequence_as(values, flat)


def _on_first_replica(strategy: tf.distribute.Strategy, value: Any) -> Any:
    return strategy.experimental_local_results(value)[0]


# ---- what each fit notes --------------------------------------------------------------------------------------------


def _patch_fits() -> None:
    """Have every `fit` note which of its steps train, whether its model trains alone, and whether it was stopped."""
    notes: dict[str, Callable[[Any], None]] = {
        "on_train_begin": _note_begin,
        "on_train_end": _note_end,
        "on_epoch_begin": lambda _callbacks: STEPS.begin_epoch(),
        "on_epoch_end": lambda callbacks: FITS.end_epoch(_rate_of(callbacks.model)),
        **dict.fromkeys(("on_test_begin", "on_predict_begin"), lambda _callbacks: STEPS.evaluate(begins=True)),
        **dict.fromkeys(("on_test_end", "on_predict_end"), lambda _callbacks: STEPS.evaluate(begins=False)),
    }
    for module in _CALLBACKS:
        callbacks = getattr(sys.modules.get(module), "CallbackList", None)
        for name, note in notes.items():
            patch_once(callbacks, name, functools.partial(_noting, note))


def _noting(note: Callable[[Any], None], call: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(call)
    def noted(callbacks: Any, *args: Any, **kwargs: Any) -> None:
        call(callbacks, *args, **kwargs)
        note(callbacks)

    return noted


def _note_begin(callbacks: Any) -> None:
    import tensorflow as tf

    strategy = getattr(callbacks.model, "distribute_strategy", None)
    is_served = isinstance(strategy, tf.distribute.ParameterServerStrategy)
    FITS.is_alone = not (is_served or is_across_workers(strategy))
    FITS.stopped_after = 0


def _rate_of(model: Any) -> float | None:
    """Return the learning rate of a model; None where it has none, or it is no plain number."""
    try:
        rate = float(model.optimizer.learning_rate.numpy())
    except Exception:  # noqa: BLE001 - it may be anything of the user's own, and training goes on
        return None
    return rate if math.isfinite(rate) and rate >= 0 else None


def _note_end(callbacks: Any) -> None:
    done = next((one.epoch[-1] + 1 for one in callbacks.callbacks if getattr(one, "epoch", None)), 0)
    is_early = callbacks.model.stop_training and done < callbacks.params.get("epochs", 0)
    FITS.stopped_after = done if is_early else 0
    FITS.has_arrays = False
    STEPS.end_fit()
