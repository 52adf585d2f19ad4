"""The Keras callbacks of ``ctx.callbacks()``: progress and metrics, TensorBoard on the chief, and a backup."""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from tfos_lab.node.activity.steps import STEPS

if TYPE_CHECKING:
    import keras

# Within an epoch, a report has the means of so many steps; the next one follows after this time, or twice as long.
WINDOW_STEPS = 16
REPORT_INTERVAL_S = 0.2

_Kind = Literal["mean", "value", "other"]


def make_callbacks(
    report: Callable[..., None], *, event_dir: str | None, backup_dir: str, is_chief: bool
) -> list[keras.callbacks.Callback]:
    """Return callbacks for ``model.fit``, for the Keras that is in use, or for both.

    ``event_dir`` is None on a node that writes no event files, ``backup_dir`` empty without restarts; the chief writes
    the backup.
    """

    def of(package: str) -> list[Any]:
        keras_module = importlib.import_module(package)
        callbacks = [progress_callback(keras_module, report)]
        if backup_dir:
            callbacks.insert(0, _backup_callback(keras_module, backup_dir, is_chief=is_chief))
        if event_dir is not None:
            # TensorBoard would open with the graph, which comes first, and cannot draw that of Keras 3.
            is_drawn = package == "tf_keras"
            callbacks.append(keras_module.callbacks.TensorBoard(log_dir=event_dir, write_graph=is_drawn))
        return callbacks

    if "tf_keras" not in sys.modules:
        return of("keras")
    if "keras" not in sys.modules:
        return of("tf_keras")
    return [_OfEither(*pair) for pair in zip(of("keras"), of("tf_keras"), strict=True)]


class _OfEither:
    """A callback where both are loaded: it is that of the model's Keras, which is known once ``fit`` begins."""

    def __init__(self, of_keras: Any, of_tf_keras: Any) -> None:
        self._chosen, self._of_tf_keras = of_keras, of_tf_keras

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # of a copy that has no callback yet
        return getattr(self._chosen, name)

    def set_model(self, model: Any) -> None:
        if isinstance(model, sys.modules["tf_keras"].Model):
            self._chosen = self._of_tf_keras
        self._chosen.set_model(model)


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


def progress_callback(keras_module: Any, report: Callable[..., None]) -> keras.callbacks.Callback:
    """Return a callback that reports steps and metrics, within epochs and at the end of each."""

    class Progress(_Progress, keras_module.callbacks.Callback):  # type: ignore[misc]
        """Sends steps and metrics to the notebook."""

        def _implements_train_batch_hooks(self) -> bool:
            # Under ParameterServerStrategy, tf_keras refuses callbacks that return True.
            return not (self.is_tf_keras and is_coordinated())

    progress = Progress()
    progress.report, progress.mean = report, keras_module.metrics.Mean
    progress.is_tf_keras = keras_module.__name__ == "tf_keras"
    return progress


class _Progress:
    """What `progress_callback` returns is also a callback of the Keras in use, which sets ``model`` and ``params``."""

    report: Callable[..., None]
    mean: type
    is_tf_keras: bool
    model: Any
    params: Mapping[str, Any]

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 - Keras names it so
        # After a restart, the backup has set the epoch to start with.
        self.step = (getattr(self.model, "_initial_epoch", None) or 0) * (self.params.get("steps") or 0)
        self.reported_step = -1
        self.pace = Pace()
        self.window = Window(self.model, self.mean)
        self.has_nan = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 - Keras names it so
        self.first_step = self.step
        self.window.clear()
        self.pace.begin()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        logs, steps = logs or {}, self.params.get("steps")
        done = min(batch + 1, steps or batch + 1)  # the last one of several steps per execution may be beyond the end
        before, self.step = self.step, self.first_step + done
        if self.is_tf_keras:
            STEPS.take_batch()  # its loop asks for batches within the graph
        # The last batch of an epoch may have fewer rows, and what it weighs is not known here.
        if done != steps:
            self.window.take(done, logs)
        # The step at which a metric stops being a number is reported exactly.
        bad = {name: value for name, value in logs.items() if value != value}  # noqa: PLR0124
        had_nan, self.has_nan = self.has_nan, bool(bad)
        if self.has_nan > had_nan or self.pace.is_due(before, self.step) or done == steps:
            self._send_window(bad)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self.reported_step != self.step:
            self._send_window({})
        steps = self.params.get("steps") or 0
        self.step = max(self.step, (epoch + 1) * steps)  # not counted under ParameterServerStrategy
        self._send({**(logs or {}), "epoch": epoch + 1})

    def _send_window(self, bad: Mapping[str, float]) -> None:
        means = {**self.window.means(), **bad}
        if means:
            self._send(mean_of_sums(self.model, means) if self.is_tf_keras else means)

    def _send(self, metrics: Mapping[str, Any]) -> None:
        self.reported_step = self.step
        steps = self.params.get("steps")
        total = steps * self.params.get("epochs", 1) if steps else None
        self.report(self.step, total_steps=total, **metrics)


class Pace:
    """Decides after which steps to report: a few times a second, and on nodes in lock-step after the same ones."""

    def __init__(self) -> None:
        self._stride = 1
        self._reported_s = 0.0

    def begin(self) -> None:
        """Restart the clock: the time before the epoch does not belong to its steps."""
        self._reported_s = time.monotonic()

    def is_due(self, before: int, step: int) -> bool:
        """Return whether to report a step, given the one before it."""
        if before // self._stride == step // self._stride:
            return False
        now_s = time.monotonic()
        waited_s, self._reported_s = now_s - self._reported_s, now_s
        # Powers of two: nodes that have not yet come to the same number have every second step in common.
        if waited_s < REPORT_INTERVAL_S:
            self._stride *= 2
        elif waited_s > 4 * REPORT_INTERVAL_S and self._stride > 1:
            self._stride //= 2
        return True


class Window:
    """The means of the last steps of an epoch, from the means since its start that Keras keeps.

    Means since the start of an epoch lag behind, and fall off a cliff where the next one begins. Metrics that are no
    means, such as AUC, have no value of some steps. What a user's own ``train_step`` returns beside metrics is that of
    the last batch. ``mean`` is ``keras.metrics.Mean`` of the Keras in use.
    """

    def __init__(self, model: Any, mean: type) -> None:
        self._model, self._mean = model, mean
        self._kinds: dict[str, _Kind] = {}
        # Steps since the start of the epoch, and the means over them: at the beginning of the window, and since.
        self._ends: deque[tuple[int, Mapping[str, float]]] = deque()

    def clear(self) -> None:
        """Begin an epoch."""
        self._ends.clear()
        self._ends.append((0, {}))

    def take(self, steps: int, logs: Mapping[str, float]) -> None:
        """Record Keras' logs after so many steps of the epoch."""
        self._ends.append((steps, logs))
        while steps - self._ends[1][0] >= WINDOW_STEPS:
            self._ends.popleft()

    def means(self) -> dict[str, float]:
        """Return the means over the window; none before the first step."""
        (start, before), (end, logs) = self._ends[0], self._ends[-1]
        means = {}
        for name, value in logs.items():
            kind = self._kinds.get(name) or self._kinds.setdefault(name, self._kind_of(name))
            if kind == "mean" and math.isfinite(value):
                means[name] = (value * end - before.get(name, 0.0) * start) / (end - start)
            elif kind != "other":
                means[name] = value
        return means

    def _kind_of(self, name: str) -> _Kind:
        metrics = [one for metric in self._model.metrics for one in getattr(metric, "metrics", None) or [metric]]
        # Keras puts the name of an output before that of its metric, and a number behind it if there are several.
        bare = re.sub(r"_\d+$", "", name)
        named = [one for one in metrics if one.name == name] or [
            one for one in metrics if one.name == bare or bare.endswith(f"_{one.name}")
        ]
        if not named:
            return "value"
        if not isinstance(named[0], self._mean) or type(named[0]).result is not self._mean.result:  # type: ignore[attr-defined]
            return "other"
        # A user's own ``train_step`` may leave the mean of the loss alone: then it has counted nothing.
        mean: Any = named[0]
        count = getattr(mean.count, "value", mean.count)
        count = mean.count if callable(count) else count
        # The sum over all nodes would have to be asked for by all of them at once.
        local = self._model.distribute_strategy.experimental_local_results(count)
        return "mean" if any(map(float, local)) else "value"


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
