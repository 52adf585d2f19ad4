"""Keras callbacks that a node offers: progress and metrics, TensorBoard on the chief, a backup to go on from."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

REPORT_INTERVAL_S = 0.2


def make_callbacks(report: Callable[..., None], *, event_dir: str | None, backup_dir: str, is_chief: bool) -> list[Any]:
    """Return callbacks for ``model.fit``, made for the Keras that is in use.

    Parameters
    ----------
    report : callable
        `NodeContext.report`.
    event_dir : str or None
        Where this node's event files go, if it writes any.
    backup_dir : str
        Where the state is kept that a restart goes on from; empty where there are no restarts.
    is_chief : bool
        Whether this node writes it.
    """
    keras = _keras()
    callbacks: list[Any] = [_progress_callback(keras, report)]
    if backup_dir:
        callbacks.insert(0, _backup_callback(keras, backup_dir, is_chief=is_chief))
    if event_dir is not None:
        callbacks.append(keras.callbacks.TensorBoard(log_dir=event_dir))
    return callbacks


def _keras() -> Any:
    if "tf_keras" in sys.modules and "keras" not in sys.modules:
        return sys.modules["tf_keras"]
    import keras

    return keras


def _backup_callback(keras: Any, backup_dir: str, *, is_chief: bool) -> Any:
    """Return a callback that keeps the training's state after each epoch, and restores it after a restart."""
    if keras.__name__ == "tf_keras":
        return keras.callbacks.BackupAndRestore(backup_dir)  # it knows of chief and workers

    class Backup(keras.callbacks.BackupAndRestore):  # type: ignore[misc]
        """Kept by the chief and read by all, so that all begin with the same epoch."""

        def _save_model(self) -> None:
            if is_chief:
                super()._save_model()

    # The one before is kept too: the chief may be lost while it writes.
    return Backup(backup_dir, double_checkpoint=True, delete_checkpoint=is_chief)


def _progress_callback(keras: Any, report: Callable[..., None]) -> Any:
    """Return a callback that reports steps (at most five times a second) and each epoch's metrics."""
    is_tf_keras = keras.__name__ == "tf_keras"

    class Progress(keras.callbacks.Callback):  # type: ignore[misc]
        """Tells the notebook where training stands."""

        def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 - Keras names it so
            # After a restart the backup has said which epoch to begin with.
            self.step = (getattr(self.model, "_initial_epoch", None) or 0) * (self.params.get("steps") or 0)
            self.reported_at = 0.0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002 - Keras names it so
            self.step += 1
            if time.monotonic() - self.reported_at >= REPORT_INTERVAL_S:
                self.tell(mean_of_sums(self.model, logs or {}) if is_tf_keras else logs)

        def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
            steps = self.params.get("steps") or 0
            self.step = max(self.step, (epoch + 1) * steps)  # nobody counted them under ParameterServerStrategy
            self.tell({**(logs or {}), "epoch": epoch + 1})

        def tell(self, logs: dict[str, Any] | None) -> None:
            self.reported_at = time.monotonic()
            steps = self.params.get("steps")
            total = steps * self.params.get("epochs", 1) if steps else None
            report(self.step, total_steps=total, **(logs or {}))

        def _implements_train_batch_hooks(self) -> bool:
            # tf_keras asks, and refuses under ParameterServerStrategy whoever says yes.
            return not (is_tf_keras and is_coordinated())

    return Progress()


def is_coordinated() -> bool:
    """Whether this is the scope of a ``ParameterServerStrategy``, where the chief does not see single steps end."""
    import tensorflow as tf

    return bool(tf.distribute.get_strategy()._should_use_with_coordinator)  # noqa: SLF001 - tf_keras asks so, too


def mean_of_sums(model: Any, logs: Mapping[str, Any]) -> dict[str, Any]:
    """Undo what tf_keras does to metrics between two ends of an epoch: it sums them over all replicas.

    A metric's result is the same on each replica, as its counts are summed up already. What a ``train_step`` of the
    user's own returns besides metrics may differ between them: it stays the sum that its author was promised.
    """
    replicas = model.distribute_strategy.num_replicas_in_sync
    if replicas == 1 or model.distribute_reduction_method not in ("auto", "sum"):
        return dict(logs)
    metrics = {metric.name for metric in model.metrics}
    return {name: value / replicas if name in metrics else value for name, value in logs.items()}
