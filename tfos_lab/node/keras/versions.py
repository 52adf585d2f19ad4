"""What differs between the versions of TensorFlow and Keras, and whether the Keras here is as our patches expect it."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from types import ModuleType
from typing import Any

from tfos_lab.core.package_versions import FITTING, numbers_of

logger = logging.getLogger(__name__)

_TRAINER = "keras.src.backend.tensorflow.trainer"
# What is replaced, with the parameters that it is called with: private functions change without notice.
_REPLACED: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {
    "keras": {
        _TRAINER: {
            "TensorFlowTrainer._maybe_symbolic_build": ("iterator", "data_batch"),
            "TensorFlowTrainer._make_function": ("step_function",),
            "TensorFlowTrainer.make_train_function": ("force",),
            "TensorFlowTrainer.make_test_function": ("force",),
            "TensorFlowTrainer.predict_on_batch": ("x",),
            "TFEpochIterator.__init__": ("distribute_strategy",),
            "TFEpochIterator._get_iterator": (),
            "reduce_per_replica": ("values", "strategy", "reduction"),
        },
        "keras.src.trainers.data_adapters.tf_dataset_adapter": {"make_class_weight_map_fn": ("class_weight",)},
        "keras.src.losses.loss": {
            "reduce_weighted_values": ("values", "sample_weight", "mask", "reduction"),
            "apply_mask": ("sample_weight", "mask"),
            "scale_loss_for_distribution": ("value",),
            "unscale_loss_for_distribution": ("value",),
        },
        "keras.src.trainers.trainer": {"Trainer.compile": ("jit_compile",), "Trainer.get_metrics_result": ()},
        "keras.src.trainers.compile_utils": {"CompileMetrics.update_state": ("y_true", "y_pred", "sample_weight")},
        "keras.src.backend.tensorflow.optimizer": {
            "TFOptimizer._backend_apply_gradients": ("grads", "trainable_variables"),
            "TFOptimizer._all_reduce_sum_gradients": ("grads_and_vars",),
        },
        "keras.src.optimizers.base_optimizer": {"BaseOptimizer.apply_gradients": ("grads_and_vars",)},
        "keras.src.optimizers.loss_scale_optimizer": {"LossScaleOptimizer.check_finite": ("grads",)},
    },
    "tf_keras": {
        "tf_keras.src.engine.compile_utils": {
            "MetricsContainer.update_state": ("y_true", "y_pred", "sample_weight"),
            "LossesContainer.__call__": ("y_true", "y_pred", "sample_weight", "regularization_losses"),
        },
        "tf_keras.src.utils.losses_utils": {"compute_weighted_loss": ("losses", "sample_weight")},
        "tf_keras.src.engine.data_adapter": {
            "DataHandler.enumerate_epochs": (),
            "_make_class_weight_map_fn": ("class_weight",),
        },
        "tf_keras.src.engine.training": {
            "Model.compile": ("jit_compile",),
            "Model.fit": ("x",),
            "Model.evaluate": ("x",),
            "Model.train_step": ("data",),
            "Model.test_step": ("data",),
        },
    },
}


def keras_3_trainer() -> ModuleType | None:
    """Return the loaded Keras 3's module of the TensorFlow trainer, if there is one.

    There may be one with ``TF_USE_LEGACY_KERAS``, too: that is about ``tf.keras``, and ``import keras`` is Keras 3.
    """
    return sys.modules.get(_TRAINER)


def misfit(package: str) -> str:
    """Return what keeps a loaded ``"keras"`` or ``"tf_keras"`` from being patched, as a sentence; "" for nothing."""
    version = str(getattr(sys.modules.get(package), "__version__", ""))
    lacking = [
        f"{module.rpartition('.')[2]}.{name}"
        for module, names in _REPLACED[package].items()
        for name, parameters in names.items()
        if not _takes(sys.modules.get(module), name, parameters)
    ]
    if not lacking:
        return ""
    return (
        f"{package} {version} does not train on several nodes as one process would (its {lacking[0]} is another than "
        f"expected): what `fit` reports may differ, or it may fail. Use {FITTING[package].wanted} on the executors"
    )


def _takes(module: ModuleType | None, name: str, parameters: tuple[str, ...]) -> bool:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return callable(found) and set(parameters) <= set(inspect.signature(found).parameters)


@functools.cache
def warn_of_misfit() -> None:
    """Log, once in a process, that a Keras that is loaded here cannot be patched."""
    for package in _REPLACED:
        if package in sys.modules and (sentence := misfit(package)):
            logger.warning("%s.", sentence)


def penalizes_mean_activity() -> bool:
    """Whether Keras 3 divides the penalty of an activity regularizer by the rows of a batch, as it does since 3.14."""
    return numbers_of(str(sys.modules["keras"].__version__)) >= (3, 14)


def is_none_spec(spec: Any) -> bool:
    """Whether a spec is that of a missing value; TensorFlow names its class in public since 2.21 only."""
    return type(spec).__name__ == "NoneTensorSpec"
