"""The Keras callbacks of ``ctx.callbacks()``: progress and metrics, TensorBoard on the chief, and a backup."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tfos_lab.node.activity.steps import STEPS

if TYPE_CHECKING:
    import keras

REPORT_INTERVAL_S = 0.2


def make_callbacks(
    report: Callable[..., None], *, event_dir: str | None, backup_dir: str, is_chief: bool
) -> list[keras.callbacks.Callback]:
    """Return callbacks for ``model.fit``, for the Keras that is in use.

    Parameters
    ----------
    report : callable
        `NodeContext.report`.
    event_dir : str or None
        Folder for this node's event files, if it writes any.
    backup_dir : str
        Folder for the state that a restart resumes from; empty without restarts.
    is_chief : bool
        Whether this node writes the backup.
    """
    keras_module = _keras_module()
    callbacks = [_progress_callback(keras_module, report)]
    if backup_dir:
        callbacks.insert(0, _backup_callback(keras_module, backup_dir, is_chief=is_chief))
    if event_dir is not None:
        callbacks.append(keras_module.callbacks.TensorBoard(log_dir=event_dir))
    return callbacks


def _keras_module() -> Any:
    if "tf_keras" in sys.modules and "keras" not in sys.modules:
        return sys.modules["tf_keras"]
    import keras

    return keras


def _backup_callback(keras_module: Any, backup_dir: str, *, is_chief: bool) -> keras.callbacks.Callback:
    """Return a callback that saves the training's state after each epoch, and restores it after a restart."""
    if keras_module.__name__ == "tf_keras":
        return keras_module.callbacks.BackupAndRestore(backup_dir)  # it distinguishes chief and workers itself
    import tensorflow as tf

    class Backup(keras_module.callbacks.BackupAndRestore):  # type: ignore[misc]
        """Written by the chief and read by all, so that all start with the same epoch."""

        def _save_model(self) -> None:
            if is_chief:
                super()._save_model()

        def _load_model(self) -> None:
            try:
                super()._load_model()
            except json.JSONDecodeError as error:
                # The chief was lost while it wrote: Keras falls back to the previous one, if there is one.
                if tf.io.gfile.exists(self._prev_weights_path):
                    raise OSError("the backup was not written to its end") from error

    # Keep the previous one too: the chief may be lost while it writes.
    return Backup(backup_dir, double_checkpoint=True, delete_checkpoint=is_chief)


def _progress_callback(keras_module: Any, report: Callable[..., None]) -> keras.callbacks.Callback:
    """Return a callback that reports steps (at most five times a second) and each epoch's metrics."""
    is_tf_keras = keras_module.__name__ == "tf_keras"

    class Progress(keras_module.callbacks.Callback):  # type: ignore[misc]
        """Sends steps and metrics to the notebook."""

        def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 - Keras names it so
            # After a restart, the backup has set the epoch to start with.
            self.step = (getattr(self.model, "_initial_epoch", None) or 0) * (self.params.get("steps") or 0)
            self.reported_at = 0.0
            self.has_nan = False

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002 - Keras names it so
            self.step += 1
            if is_tf_keras:
                STEPS.take_batch()  # its loop asks for batches within the graph
            # The step at which a metric stops being a number is reported exactly.
            had_nan, self.has_nan = self.has_nan, any(value != value for value in (logs or {}).values())  # noqa: PLR0124
            if self.has_nan > had_nan or time.monotonic() - self.reported_at >= REPORT_INTERVAL_S:
                self.send(mean_of_sums(self.model, logs or {}) if is_tf_keras else logs)

        def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
            steps = self.params.get("steps") or 0
            self.step = max(self.step, (epoch + 1) * steps)  # not counted under ParameterServerStrategy
            self.send({**(logs or {}), "epoch": epoch + 1})

        def send(self, logs: dict[str, Any] | None) -> None:
            self.reported_at = time.monotonic()
            steps = self.params.get("steps")
            total = steps * self.params.get("epochs", 1) if steps else None
            report(self.step, total_steps=total, **(logs or {}))

        def _implements_train_batch_hooks(self) -> bool:
            # Under ParameterServerStrategy, tf_keras refuses callbacks that return True.
            return not (is_tf_keras and is_coordinated())

    return Progress()


def is_coordinated() -> bool:
    """Whether this is the scope of a ``ParameterServerStrategy``, whose chief does not see single steps end."""
    import tensorflow as tf

    return bool(tf.distribute.get_strategy()._should_use_with_coordinator)  # noqa: SLF001 - as tf_keras does


def mean_of_sums(model: Any, logs: Mapping[str, Any]) -> dict[str, Any]:
    """Undo that tf_keras sums metrics over all replicas within an epoch.

    A metric's result is the same on each replica, since its counts are summed already. Other results of a user's own
    ``train_step`` may differ between replicas; they stay the sum that tf_keras documents.
    """
    replicas = model.distribute_strategy.num_replicas_in_sync
    if replicas == 1 or model.distribute_reduction_method not in ("auto", "sum"):
        return dict(logs)
    metrics = {metric.name for metric in model.metrics}
    return {name: value / replicas if name in metrics else value for name, value in logs.items()}
