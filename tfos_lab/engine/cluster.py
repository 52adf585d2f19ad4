"""A cluster, as its user holds it: wait for it, feed it, read what it says, stop it."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tfos_lab.core.states import RunState
from tfos_lab.engine.feed.feeding import Feeding
from tfos_lab.engine.lifecycle import LAST_ERRORS_S, Lifecycle
from tfos_lab.engine.metrics import draw_cluster, metrics_frame
from tfos_lab.engine.models import home_model, load_home_model
from tfos_lab.engine.results import Results
from tfos_lab.engine.state.events import ClusterView, Event, MetricsReported
from tfos_lab.engine.state.readers import NOTHING_READ
from tfos_lab.errors import ClusterEnded, FeedError, WaitTimeout

if TYPE_CHECKING:
    from collections.abc import Mapping

    import matplotlib.figure
    import pandas as pd

    from tfos_lab.engine.discovery.publisher import Publisher
    from tfos_lab.engine.feed.inference import Inference
    from tfos_lab.engine.feed.stream import StreamFeed
    from tfos_lab.engine.generation_maker import GenerationMaker


class Cluster(Lifecycle):
    """All nodes of one run. Made by `tfos_lab.run`; usable with ``with``, which stops it at the end.

    Safe to use from any thread.

    Attributes
    ----------
    id, name : str
        Unique identifier; the label that the user gave.
    run_dir : pathlib.Path
        Folder on this machine that holds the nodes' whole logs, and in ``output`` what they have written to
        ``ctx.output_dir``.
    bus : Bus
        What happens, as it happens.
    publisher : Presence or None
        How it is seen from outside this process.
    """

    def __init__(self, maker: GenerationMaker, *, run_dir: Path, called_s: float) -> None:
        self.publisher: Publisher | None = None
        super().__init__(
            maker.config, run_dir=run_dir, called_s=called_s, spark=maker.spark, make_generation=maker.make
        )
        self._feeding = Feeding(self)
        self._results = Results(self._outcomes)
        self._inference: Inference | None = None
        self._first_inference = threading.Lock()

    def __repr__(self) -> str:
        view = self.view()
        up = sum(node.state.is_up for node in view.nodes)
        return f"<Cluster {self.name!r}: {view.state}, {up}/{len(view.nodes)} nodes, {view.launcher}>"

    # ---- what it is doing -------------------------------------------------------------------------------------------

    def view(self) -> ClusterView:
        """Return all that can be seen of the cluster now, as one value."""
        tensorboard = self.publisher.tensorboard_status if self.publisher is not None else None
        return replace(super().view(), tensorboard=tensorboard)

    # ---- what it has done -------------------------------------------------------------------------------------------

    @property
    def results(self) -> Results:
        """What nodes have returned so far: ``results["worker:0"]``."""
        return self._results

    @property
    def timings(self) -> dict[str, float]:
        """Seconds from the call to the end of each phase: launched, reserved, released, running, done."""
        return dict(self.history.timings)

    @property
    def metrics(self) -> pd.DataFrame:
        """What nodes have reported so far, as a table.

        Columns: ``time`` (float64, seconds since the call), ``node`` (string), ``step`` (Int64, may be missing), and
        one float64 column for each metric, NaN where a report did not hold it. Rows are in the order of arrival.
        """
        return metrics_frame(self.history.metrics, self.called_s)

    def plot(self) -> matplotlib.figure.Figure:
        """Draw the metrics, one line for each node, and where the seconds went; returns matplotlib's Figure."""
        return draw_cluster(self.view(), self.history.metrics)

    def reports_after(self, count: int = 0) -> tuple[list[MetricsReported], int]:
        """Return the metrics reported after the first ``count`` ones, and how many there have been in all."""
        return self.history.metrics_after(count)

    @property
    def events(self) -> list[Event]:
        """What has happened, oldest first; log text is in `logs`."""
        return self.history.events

    @property
    def tensorboard_url(self) -> str | None:
        """Where a browser shows TensorBoard, also when the cluster has ended; None without ``tensorboard=True``.

        In a notebook it is an address of its Jupyter server, under the user's login. Where no Jupyter server with our
        extension shows it (a script, IPython in a terminal, papermill), it is a link for browsers on this machine, good
        for as long as this process lives: a port on 127.0.0.1, opened when it is first asked for, that answers nobody
        who does not know the link. It has been tried when it is returned, which may take some seconds.
        """
        return self.publisher.tensorboard_url if self.publisher is not None else None

    def record_event(self, event: Event) -> None:
        """Hear each event first; for the bus."""
        super().record_event(event)
        if self.publisher is not None:
            self.publisher.note(event)

    def _outcomes(self) -> dict[str, Any]:
        generation = self.generation
        with generation.server.lock:
            return generation.cluster_state.outcomes

    def logs(self, node: str | None = None, tail: int | None = None) -> str:
        """Return what a node wrote, or all nodes with their names before each line.

        Parameters
        ----------
        node : str, optional
            Such as ``"worker:0"``; all nodes by default.
        tail : int, optional
            Only the last so many lines of each node, without some of TensorFlow's and Keras' that mislead here.

        Raises
        ------
        KeyError
            If there is no such node.
        """
        names = [view.node for view in self.nodes]
        if node is not None:
            self.log_path(node)
            return self.log_writer.read(node, tail)
        return "\n".join(f"[{name}] {line}" for name in names for line in self.log_writer.read(name, tail).splitlines())

    def log_path(self, node: str) -> Path:
        """Return the file that holds the whole log of ``node``; it comes with the node's first words.

        Raises
        ------
        KeyError
            If there is no such node.
        """
        names = [view.node for view in self.nodes]
        if node not in names:
            raise KeyError(f"no node {node!r} in this cluster; there are {', '.join(names)}")
        return self.log_writer.path(node)

    # ---- the model --------------------------------------------------------------------------------------------------

    @property
    def model_path(self) -> Path:
        """The model that ``ctx.save_model`` saved on the chief, as `tfos_lab.predict` takes it: a file of this machine.

        Raises
        ------
        NoModel
            While the run goes on, and where nothing was saved.
        """
        return home_model(self.output.home, name=self.name, state=self.state)

    def model(
        self,
        *,
        custom_objects: Mapping[str, Any] | None = None,
        compile: bool = True,  # noqa: A002 - Keras' own name
        safe_mode: bool = True,
    ) -> Any:
        """Load the model that ``ctx.save_model`` saved on the chief; TensorFlow is imported into this kernel for that.

        Parameters
        ----------
        custom_objects : mapping of str to object, optional
            Classes and functions that the model was made with, where Keras does not know them.
        compile : bool
            Also restore optimizer, loss and metrics.
        safe_mode : bool
            Refuse models that hold Python code, as ``Lambda`` layers do.

        Returns
        -------
        keras.Model, tf_keras.Model or tf.Module
            The kind that was saved.

        Raises
        ------
        NoModel
            While the run goes on, where nothing was saved, and where this kernel lacks TensorFlow.

        Examples
        --------
        >>> model = cluster.model()  # doctest: +SKIP
        >>> model.predict(images)  # doctest: +SKIP
        """
        return load_home_model(self.model_path, custom_objects=custom_objects, compile=compile, safe_mode=safe_mode)

    # ---- life -------------------------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Bring the nodes to life; returns when all are on their way, or the cluster has been stopped meanwhile."""
        super().launch()
        if self.config.restarts:
            from tfos_lab.engine.restarts import Restarter

            Restarter(self, self._feeding).start()

    def wait(self, timeout_s: float | None = None) -> Results:
        """Wait until all training nodes have returned, and return what they returned.

        Parameters
        ----------
        timeout_s : float, optional
            Give up waiting after so many seconds; the cluster goes on.

        Raises
        ------
        NodeFailed
            With the remote traceback of the first node that failed.
        WaitTimeout
            If nodes are still running after ``timeout_s``.
        ClusterEnded
            If the cluster was stopped before its nodes returned.
        FeedError
            If the functions have returned, and none has read any of the rows that were fed.
        """
        self.end_feed()
        try:
            if not self.ended:
                self.generation.launcher.run_here()
        except BaseException:
            self.generation.server.over.wait(LAST_ERRORS_S)  # so that the cluster's state tells of it, too
            raise
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.wait_a_step():
            if deadline is not None and time.monotonic() > deadline:
                running = [view.node for view in self.nodes if not view.state.ended]
                raise WaitTimeout(waited_s=float(timeout_s or 0), still_running=running)
        self._feeding.settle()
        if self.state is RunState.FAILED:
            self.raise_failure()
        if self.state is RunState.STOPPED:
            raise ClusterEnded(cluster=self.name, state="stopped", asked="wait for results")
        if self.generation.feed_state.nothing_read:
            raise FeedError(reason=NOTHING_READ)
        return self._results

    def shutdown(self, timeout_s: float | None = None) -> None:
        """Let the nodes work to their end, wait for it, and give everything back; may be called twice.

        Raises
        ------
        NodeFailed, WaitTimeout, FeedError
            As `wait` does; the cluster is stopped in any case.
        """
        try:
            if not self.ended:
                self.wait(timeout_s)
        finally:
            self.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # ---- rows -------------------------------------------------------------------------------------------------------

    def train(
        self,
        data: Any,
        epochs: int = 1,
        columns: list[str] | None = None,
        remainder: str = "exact",
        timeout_s: float = 600.0,
        *,
        spool_bytes: int | None = None,
        checkpoint: str | None = None,
    ) -> StreamFeed | None:
        """Feed a DataFrame (or RDD) to the nodes that train; returns when all rows have been stored with them.

        Beside parameter servers, it waits for each node to ask for rows, or to serve: with ParameterServerStrategy the
        chief reads all of them, and where each worker trains by itself, they are shared out.

        Parameters
        ----------
        data : pyspark.sql.DataFrame or pyspark.RDD
            The rows. Each one reaches exactly one node, exactly once per epoch. Of a streaming DataFrame, all rows make
            one epoch, which goes on until the stream or the cluster is stopped.
        epochs : int
            How often the nodes are to read them; they find it in ``ctx.epochs``.
        columns : list of str, optional
            Which columns; all by default.
        remainder : {"exact", "pad", "drop"}
            What happens at the end of an epoch; see ``ctx.dataset``. Of a stream, at the end of each micro-batch.
        timeout_s : float
            Seconds in which Spark ends no task, and nodes neither get nor take a row, after which the feed fails.
        spool_bytes : int, optional
            How much disk the rows may take on each node; most of what is free by default. Rows that are read once wait
            for room; rows that are read again, or shuffled, have to fit.
        checkpoint : str, optional
            Folder in which Spark keeps how far a stream has been read: another cluster that is given it goes on there,
            also when this kernel was killed. The micro-batch that was under way then is read again, from its first row.

        Returns
        -------
        None or StreamFeed
            For a stream, at once: a handle to stop it. `wait` waits for its end.

        Raises
        ------
        ConfigError
            For columns that are not there or cannot become tensors, and options that do not fit.
        FeedError
            If the rows cannot be fed; the cause is named, and the nodes are stopped.
        NodeFailed
            If a node failed meanwhile.
        """
        from tfos_lab.engine.feed.request import FeedRequest, checked_frame
        from tfos_lab.engine.feed.stream import feed_stream

        frame = checked_frame(
            self,
            data,
            epochs=epochs,
            columns=columns,
            remainder=remainder,
            timeout_s=timeout_s,
            spool_bytes=spool_bytes,
        )
        if frame.isStreaming:
            folder = checkpoint or (self.run_dir / f"checkpoint-{len(self._feeding.streams)}").as_uri()
            request = FeedRequest(frame, 1, remainder, timeout_s, stream=True, source=self._feeding.next_source())
            stream: StreamFeed = feed_stream(self, self._feeding, request, checkpoint=folder)
            return stream
        source = self._feeding.next_source()
        self._feeding.feed(FeedRequest(frame, epochs, remainder, timeout_s, spool_bytes or 0, source=source))
        return None

    def inference(self, data: Any, columns: list[str] | None = None, *, schema: Any = None) -> Any:
        """Have the nodes answer for the rows of a DataFrame: their functions read them and put results.

        The function loops over ``ctx.dataset(batch_size)`` and calls ``ctx.put_results`` once per batch. Several
        inferences may follow one another; the loops end with `wait` or `shutdown`.

        Parameters
        ----------
        data : pyspark.sql.DataFrame or pyspark.RDD
            The rows; also a streaming DataFrame.
        columns : list of str, optional
            Which of them the nodes see; all by default.
        schema : str or pyspark.sql.types.StructType, optional
            Names and types of the results, such as ``"prediction float"``. Without it, one row is sent to find out.

        Returns
        -------
        pyspark.sql.DataFrame or pyspark.RDD
            All columns of ``data`` and those of the results, in the order of the rows within each partition. It is
            lazy: rows travel when it is used, as often as it is used, and the cluster has to live until then. For an
            RDD, an RDD of the results.

        Raises
        ------
        ConfigError
            For columns that are not there or cannot become tensors, and where results cannot be found out.
        FeedError
            If the row that is sent to find out is not answered.
        ClusterEnded, NodeFailed
            If the nodes do not live.
        """
        from tfos_lab.engine.feed.inference import Inference

        with self._first_inference:
            if self._inference is None:
                self._inference = Inference(self, self._feeding)
        return self._inference.of(data, columns, schema)

    def end_feed(self) -> None:
        """Tell the nodes that no further rows will come; what was fed can be read to its end."""
        self._feeding.end()
