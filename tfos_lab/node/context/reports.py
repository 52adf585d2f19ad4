"""The part of ``ctx`` that reports to the notebook: progress, metrics, and the Keras callbacks that send them."""

from __future__ import annotations

import contextlib
import functools
import math
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_lab.core import messages as m
from tfos_lab.core.paths import is_local, split_scheme
from tfos_lab.errors import ConfigError
from tfos_lab.node.activity.steps import STEPS
from tfos_lab.node.context.facts import NodeFacts

if TYPE_CHECKING:
    import keras


# Of reports, so many at once are sent as they come, and so many per second: then the newest one at a time, as often as
# the driver can take it from all nodes. A loop can call `ctx.report` 100,000 times a second.
_BURST = 1000
_MOST_PER_S = 1000.0
_LEAST_PER_S = 5.0
_OF_ALL_PER_S = 20_000.0
# A report that was held back is sent after this time, if no other has come.
_HELD_S = 0.25


class ReportMethods(NodeFacts):
    """Methods of `NodeContext` for progress and metrics."""

    @functools.cached_property
    def _report_rate(self) -> _ReportRate:
        return _ReportRate(self._send, sum(map(len, self.cluster_spec.values())))

    def report(self, step: int | None = None, *, total_steps: int | None = None, **metrics: float) -> None:
        """Show progress and metrics in the notebook.

        A node may report 1,000 times at once and per second (less often where there are more than 20 nodes). Of reports
        that come faster, the newest are shown.

        Parameters
        ----------
        step : int, optional
            Steps done so far; one more with each call by default.
        total_steps : int, optional
            How many there will be; gives the progress bar its end.
        **metrics : float
            Numbers to show: scalars, or tensors, arrays and variables of one element.

        Raises
        ------
        ConfigError
            If a metric is no number.
        FloatingPointError
            If a metric is NaN and the cluster has ``on_nan="stop"``; the metric is shown, too.
        """
        self._step = int(step) if step is not None else self._step + 1
        STEPS.report(self._step)
        figures = {name: _number(name, value) for name, value in metrics.items()}
        self._report_rate.take(
            m.Reported(
                step=self._step,
                total_steps=total_steps,
                metrics=figures,
                time_s=time.time(),
            )
        )
        bad = [name for name, value in figures.items() if math.isnan(value)]
        if bad and self._stop_on_nan:
            raise FloatingPointError(f'{bad[0]} is NaN since step {self._step}, and on_nan="stop" ends the run')

    def show(self, thing: Any, name: str, *, step: int | None = None, labels: Sequence[object] | None = None) -> None:
        """Show a picture, a table or a confusion matrix in the notebook, and keep it in the run's folder.

        It never ends the function for being too large: then a sentence stands in its place.

        Parameters
        ----------
        thing : figure, image, array, DataFrame or table
            A Matplotlib figure, or what has one; a PIL image; an array or tensor of shape (height, width), (height,
            width, 1, 3 or 4), or of pictures (count, height, width, channels), which stand side by side: of uint8,
            or floats from 0 to 1, other numbers being scaled from their lowest to their highest; a pandas DataFrame or
            Series or an Arrow table, of which the first 100 rows and 30 columns are shown. A square array of counts,
            of shape (classes, classes) and a type of whole numbers other than uint8, is a confusion matrix whose rows
            are the true classes.
        name : str
            Its title. What this node shows later under the same name replaces it.
        step : int, optional
            Keep one for each step instead: the newest is shown, earlier ones are folded below it. Of more than 20
            steps, every second one is dropped again and again, but neither the first nor the last.
        labels : sequence, optional
            The names of the classes; any square array is a confusion matrix with them.

        Raises
        ------
        ConfigError
            If it is nothing that can be shown, or its shape does not fit.

        Examples
        --------
        >>> import numpy as np
        >>> import tfos_lab
        >>> ctx = tfos_lab.local_context()
        >>> ctx.show(np.zeros((28, 28)), "a digit", step=100)
        >>> ctx.show([[9, 1], [2, 8]], "confusion", labels=["cat", "dog"])
        """
        from tfos_lab.node.context.shown import content_of

        content = content_of(thing, name, labels)
        number = None if step is None else int(step)
        self._send(m.Shown(name=str(name), step=number, content=content, time_s=time.time()))

    def callbacks(self) -> list[keras.callbacks.Callback]:
        """Return Keras callbacks for ``fit``: progress and metrics to the notebook, TensorBoard on the chief.

        If the cluster may be restarted (``restarts``), they include a backup of the training after each epoch, from
        which ``fit`` resumes. Progress is reported within epochs too, except under a ``ParameterServerStrategy``, where
        it is reported after each epoch.

        Raises
        ------
        ConfigError
            If event files cannot be written to ``log_dir`` on this host.
        """
        if self.is_chief and is_local(self.event_dir):
            folder = Path(split_scheme(self.event_dir)[2])
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder):
                    pass
            except OSError as error:
                host = socket.gethostname()
                why = f"event files cannot be written there on {host} ({error.strerror})"
                advice = f"give a folder that {host} can write to"
                raise ConfigError([f"log_dir='{self.log_dir}': {why}; {advice}"]) from None
            if not is_local(self.log_dir):
                from tfos_lab.data.file_systems import require_folder

                require_folder(self.log_dir)
        from tfos_lab.node.keras.callbacks import make_callbacks

        return make_callbacks(
            self.report,
            event_dir=self.event_dir if self.is_chief else None,
            backup_dir=self._backup_dir,
            is_chief=self.is_chief,
        )


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        # Python makes no number of a strategy's variable, such as a learning rate, nor of an array of one element.
        import numpy as np

        with contextlib.suppress(Exception):
            return float(np.asarray(value.numpy() if hasattr(value, "numpy") else value).item())
        raise ConfigError([f"ctx.report: {name}={value!r:.50} is not a number"]) from None


class _ReportRate:
    """Sends the reports of one of so many nodes; safe to use from several threads."""

    def __init__(self, send: Callable[[m.Reported], None], nodes: int) -> None:
        self._send = send
        self._per_s = min(_MOST_PER_S, max(_LEAST_PER_S, _OF_ALL_PER_S / max(1, nodes)))
        self._lock = threading.Lock()
        self._tokens = float(_BURST)
        self._filled_at = time.monotonic()
        self._held: m.Reported | None = None
        self._timer: threading.Timer | None = None
        self._has_told = False

    def take(self, report: m.Reported) -> None:
        """Send a report, or hold it back: it is sent later, or a newer one is."""
        with self._lock:
            now = time.monotonic()
            self._tokens = min(float(_BURST), self._tokens + (now - self._filled_at) * self._per_s)
            self._filled_at = now
            if self._held is not None and not self._has_told:  # this one is left out
                self._has_told = True
                sys.stderr.write(
                    f"tfos_lab: ctx.report is called more than {self._per_s:,.0f} times a second on this node: the "
                    "notebook gets so many of them, the newest at each time. Report every n-th step to choose which.\n"
                )
            if self._tokens >= 1.0:
                self._tokens -= 1.0
                self._held = None
                self._send(report)
                return
            self._held = report
            if self._timer is None:
                self._timer = threading.Timer(_HELD_S, self.flush)
                self._timer.name, self._timer.daemon = "tfos-report", True
                self._timer.start()

    def flush(self) -> None:
        """Send the report that was held back, if any."""
        with self._lock:
            self._timer = None
            report, self._held = self._held, None
            if report is not None:
                self._send(report)
