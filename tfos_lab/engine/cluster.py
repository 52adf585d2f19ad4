"""A cluster as its user holds it: feed it, wait for it, read what it reports, stop it.

`Cluster` has what users need and nothing else; the work is done by `tfos_lab.engine.runtime.ClusterRuntime`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tfos_lab.core.states import RunState
from tfos_lab.engine.diagnosis.diagnosis import Diagnosis
from tfos_lab.engine.metrics import draw_cluster, metrics_frame
from tfos_lab.engine.models import find_run_model, load_run_model
from tfos_lab.engine.results import Results
from tfos_lab.engine.runtime import ClusterRuntime
from tfos_lab.engine.state.events import ClusterView, Event, NodeView
from tfos_lab.messages import INPUT_QUEUE

if TYPE_CHECKING:
    from collections.abc import Mapping

    import matplotlib.figure
    import pandas as pd

    from tfos_lab.engine.feed.dstream import DStreamFeed
    from tfos_lab.engine.feed.stream import StreamFeed
    from tfos_lab.engine.profile.profiles import Profile


class Cluster:
    """All nodes of one run. Made by `tfos_lab.run`; usable with ``with``, which stops it at the end.

    Safe to use from any thread.
    """

    def __init__(self, runtime: ClusterRuntime) -> None:
        self._runtime = runtime

    def __repr__(self) -> str:
        view = self.view()
        up = sum(node.state.is_up for node in view.nodes)
        return f"<Cluster {self.name!r}: {view.state}, {up}/{len(view.nodes)} nodes, {view.launcher}>"

    # ---- what it is -------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Unique identifier: the name of `run_dir`."""
        return self._runtime.id

    @property
    def name(self) -> str:
        """The label that the user gave."""
        return self._runtime.name

    @property
    def run_dir(self) -> Path:
        """Folder on this machine with the nodes' whole logs, a record of the run, and their output.

        ``output`` holds what the nodes wrote to ``ctx.output_dir``, ``run.json`` the run's options, versions, metrics
        and outcome.
        """
        return self._runtime.run_dir

    @property
    def state(self) -> RunState:
        """The state of the cluster as a whole; see `ClusterView`."""
        return self._runtime.state

    @property
    def ended(self) -> bool:
        """Whether the cluster has ended, well or badly."""
        return self._runtime.ended

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """The nodes, in launch order: ps, chief, evaluator, workers."""
        return self._runtime.nodes

    def view(self) -> ClusterView:
        """Return all that can be seen of the cluster now, as one value."""
        return self._runtime.view()

    # ---- what it reports --------------------------------------------------------------------------------------------

    @property
    def results(self) -> Results:
        """What nodes have returned so far: ``results["worker:0"]``."""
        return self._runtime.results

    @property
    def timings(self) -> dict[str, float]:
        """Seconds from the call to the end of each phase: launched, reserved, released, running, done."""
        return dict(self._runtime.history.timings)

    @property
    def metrics(self) -> pd.DataFrame:
        """What nodes have reported so far, as a table.

        Columns: ``time`` (float64, seconds since the call), ``node`` (string), ``step`` (Int64, may be missing), and
        one float64 column for each metric, NaN where a report lacks it. Rows are in the order of arrival.
        """
        return metrics_frame(self._runtime.history.metrics, self.view().started_s)

    def diagnose(self) -> Diagnosis:
        """Say why training is as slow as it is, from what the nodes have measured in the last seconds.

        Returns
        -------
        Diagnosis
            ``kind`` and ``verdict`` say what limits the speed, the second one in words; ``nodes`` has each node's step
            time, what it waits for, and what it takes of its host. ``progress`` and ``seconds_left`` are of the whole
            training. Of a cluster that has ended, what was known last.

        Examples
        --------
        >>> print(cluster.diagnose())  # doctest: +SKIP
        compute bound: 93 % of a step of 210 ms is spent in TensorFlow, on 1.9 cores of each node; more nodes or GPUs …
        """
        return self._runtime.diagnose()

    def plot(self) -> matplotlib.figure.Figure:
        """Draw the metrics, one line for each node, and a timeline of the phases."""
        return draw_cluster(self.view(), self._runtime.history.metrics)

    @property
    def events(self) -> list[Event]:
        """What has happened, oldest first; for log text, see `logs`."""
        return self._runtime.history.events

    @property
    def tensorboard_url(self) -> str | None:
        """Where a browser shows TensorBoard, also when the cluster has ended; None without ``tensorboard=True``.

        In a notebook it is an address of its Jupyter server, behind the user's login. Where no Jupyter server with our
        extension shows it (a script, IPython in a terminal, papermill), it is a link for browsers on this machine. The
        link works as long as this process lives: a port on 127.0.0.1, opened when the link is first asked for, that
        answers only to this link. It has been tried when it is returned, which may take some seconds.
        """
        publisher = self._runtime.publisher
        return publisher.tensorboard_url if publisher is not None else None

    def logs(self, node: str | None = None, tail: int | None = None) -> str:
        """Return what a node has written, or all nodes, with their names before each line.

        Parameters
        ----------
        node : str, optional
            Such as ``"worker:0"``; all nodes by default.
        tail : int, optional
            Only the last so many lines of each node, without some misleading lines of TensorFlow and Keras.

        Raises
        ------
        KeyError
            If there is no such node.
        """
        return self._runtime.logs(node, tail)

    def stacks(self, node: str | None = None, timeout_s: float = 5.0) -> dict[str, str]:
        """Return where the threads of a node, or of all nodes, are now, without stopping them.

        Parameters
        ----------
        node : str, optional
            Such as ``"worker:0"``; all nodes by default.
        timeout_s : float
            How long to wait for answers. A process whose interpreter is locked by a long call into C is asked with a
            signal meanwhile; one that is stopped has no stacks, and says so.

        Returns
        -------
        dict of str to str
            The Python stacks of all threads by node, most recent call last; or why there are none.

        Raises
        ------
        KeyError
            If there is no such node.
        """
        return self._runtime.stacks(node, timeout_s)

    def profile(self, node: str | None = None, seconds: float = 5.0, *, trace: bool | None = None) -> Profile:
        """Find out what a node spends its time on, while it goes on.

        Parameters
        ----------
        node : str, optional
            Such as ``"worker:0"``; by default the one that leads.
        seconds : float
            How long.
        trace : bool, optional
            Whether to take a trace with TensorFlow's own profiler, too. By default only of a node that is alone in its
            cluster: TensorFlow 2.21 may crash when the trace of a node ends that works with others, and the run fails.

        Returns
        -------
        Profile
            In a notebook, a flame graph of the Python functions; it is kept in `run_dir`. The trace is put among the
            run's event files, where TensorBoard shows it if its profile plugin is installed.

        Raises
        ------
        KeyError
            If there is no such node.
        ProfileFailed
            If its function does not run, or its process does not answer.
        """
        return self._runtime.profile(node, seconds, trace=trace)

    # ---- the model --------------------------------------------------------------------------------------------------

    @property
    def model_path(self) -> Path:
        """The model that ``ctx.save_model`` saved on the chief, a path on this machine for `tfos_lab.predict`.

        Raises
        ------
        NoModel
            While the run goes on, and where nothing was saved.
        """
        return find_run_model(self._runtime.files.output, name=self.name, state=self.state)

    def model(
        self,
        *,
        custom_objects: Mapping[str, Any] | None = None,
        compile: bool = True,  # noqa: A002 - Keras' own name
        safe_mode: bool = True,
    ) -> Any:
        """Load the model that ``ctx.save_model`` saved on the chief; this imports TensorFlow into the kernel.

        Parameters
        ----------
        custom_objects : mapping of str to object, optional
            Classes and functions that the model was made with and Keras does not know.
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
        return load_run_model(self.model_path, custom_objects=custom_objects, compile=compile, safe_mode=safe_mode)

    # ---- wait and stop ----------------------------------------------------------------------------------------------

    def wait_until_running(self, timeout_s: float | None = None) -> None:
        """Wait until all nodes run.

        Raises
        ------
        ReservationTimeout
            If nodes are missing after ``timeout_s`` (``reservation_timeout_s`` by default); the cluster is stopped.
        NodeFailed
            If a node failed before.
        """
        self._runtime.wait_until_running(timeout_s)

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
        return self._runtime.wait(timeout_s)

    def stop(self, *, grace_s: float | None = None) -> None:
        """Stop all nodes: SIGTERM, then SIGKILL after ``grace_s`` seconds. May be called twice, and from any thread.

        Waits while nodes on other hosts send what they have written to ``ctx.output_dir``; a second call with
        ``grace_s=0`` does not.
        """
        self._runtime.stop(grace_s=grace_s)

    def shutdown(self, timeout_s: float | None = None) -> None:
        """Wait until the nodes have finished their work, then stop the cluster; may be called twice.

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
        objects: bool | None = None,
        queue: str = INPUT_QUEUE,
    ) -> StreamFeed | DStreamFeed | None:
        """Feed a DataFrame (or RDD), or files, to the nodes that train.

        It returns when all rows have been stored with them; for files, when each node knows which rows it will read.

        In a cluster with parameter servers, it first waits until each node has asked for rows or has begun to serve:
        with ParameterServerStrategy the chief reads all rows, and where each worker trains by itself, the workers share
        them.

        Parameters
        ----------
        data : pyspark.sql.DataFrame, pyspark.RDD, DStream, pandas.DataFrame, arrays, or names of files
            The rows. Each one reaches exactly one node, exactly once per epoch. All rows of a streaming DataFrame or a
            DStream make one epoch, which lasts until the stream or the cluster is stopped. A NumPy array of shape
            ``(rows, …)`` is the column ``x``, a tuple of arrays the columns ``x``, ``y`` and ``w``; a dict of arrays, a
            structured array and a pandas DataFrame have names of their own. Spark lacks some dtypes: uint8 becomes
            int16, uint16 int32, uint32 and uint64 int64, and float16 and bfloat16 float32.

            A path, a pattern, a folder (``year=2024`` in folders' names are columns) or a list of them names Parquet,
            TFRecord, CSV (with a header) or JSON files (an object per line), at any address that all nodes can open.
            Each node reads its own equal share of the rows itself, in each epoch anew, around Spark; no session is
            needed. The types of CSV and JSON are those of each file's first rows. A name without ``/`` and wildcards,
            of which there is no file, is a table of Parquet files in Spark's catalog.
        epochs : int
            How often the nodes are to read them; they find it in ``ctx.epochs``.
        columns : list of str, optional
            Which columns; all by default.
        remainder : {"exact", "pad", "drop"}
            What happens at the end of an epoch; see ``ctx.dataset``. For a stream, at the end of each micro-batch.
        timeout_s : float
            The feed fails after so many seconds in which Spark ends no task, and nodes neither get nor take a row.
        spool_bytes : int, optional
            How much disk the rows may take on each node; most of what is free by default. Rows that are read once wait
            for room; rows that are read again, or shuffled, have to fit.
        objects : bool, optional
            Whether rows travel as Python objects, for ``ctx.data_feed``: the elements of an RDD exactly as they are, of
            a DataFrame its `Row` objects. With False they travel as columns, as those of a DataFrame do by default. By
            default, an RDD goes as objects where Spark can make no columns of its first row, and otherwise as the nodes
            ask: this waits until one of them has called ``ctx.dataset`` (columns) or ``ctx.data_feed`` (objects).
        queue : str
            Which ``ctx.data_feed(queue=...)`` reads the rows; ``ctx.dataset`` reads those of ``"input"``.
        checkpoint : str, optional
            Folder in which Spark records how far it has read a stream. Another cluster that is given this folder
            continues from there, also after this kernel was killed; the micro-batch that was under way is then read
            again, from its first row.

        Returns
        -------
        None, StreamFeed or DStreamFeed
            For a stream, at once: a handle to stop it. `wait` waits for its end. Rows of a DStream come once its
            ``StreamingContext`` is started.

        Raises
        ------
        ConfigError
            For columns that do not exist or cannot become tensors, options that do not fit, and files that are not
            there, differ in format or columns, or cannot be read.
        FeedError
            If the rows cannot be fed, as where one cannot be pickled; the cause is named, and the nodes are stopped.
        NodeFailed
            If a node failed meanwhile.
        """
        from tfos_lab.engine.feed.dstream import feed_dstream
        from tfos_lab.engine.feed.request import is_dstream, make_request
        from tfos_lab.engine.feed.stream import feed_stream

        runtime, feeding = self._runtime, self._runtime.feeding
        options: dict[str, Any] = {
            "epochs": epochs,
            "columns": columns,
            "remainder": remainder,
            "timeout_s": timeout_s,
            "spool_bytes": spool_bytes,
            "objects": objects,
            "queue": queue,
        }
        if is_dstream(data):
            dstream: DStreamFeed = feed_dstream(runtime, feeding, data, **options)
            return dstream
        request = make_request(runtime, data, **options)
        request = replace(request, source=feeding.next_source())
        if getattr(request.frame, "isStreaming", False):
            folder = checkpoint or runtime.files.checkpoint(len(feeding.streams))
            stream: StreamFeed = feed_stream(runtime, feeding, replace(request, stream=True), checkpoint=folder)
            return stream
        feeding.feed(request)
        return None

    def inference(
        self,
        data: Any,
        columns: list[str] | None = None,
        *,
        schema: Any = None,
        objects: bool | None = None,
        queue: str = "input",
        timeout_s: float = 600.0,
    ) -> Any:
        """Have the nodes compute results for rows.

        The function loops over ``ctx.dataset(batch_size)`` and calls ``ctx.put_results`` once per batch; or it takes
        rows as Python objects from ``ctx.data_feed(train_mode=False)``, and gives one result for each to its
        ``batch_results``. Several inferences may follow one another; the loops end with `wait` or `shutdown`.

        Parameters
        ----------
        data : DataFrame, RDD, or arrays
            The rows; also a streaming DataFrame, and what `train` takes of pandas and NumPy.
        columns : list of str, optional
            Which columns the nodes see; all by default.
        schema : str or pyspark.sql.types.StructType, optional
            Names and types of the results, such as ``"prediction float"``. Without it, one row is sent to find out.
        objects : bool, optional
            Whether rows and results travel as Python objects, of any type, exactly as they are. By default an RDD's do
            if the nodes read rows with ``ctx.data_feed``; this waits until one of them asks for rows.
        queue : str
            Which ``ctx.data_feed(queue=...)`` reads the rows; ``ctx.dataset`` reads those of ``"input"``.
        timeout_s : float
            What uses the results fails after rows have waited so many seconds without any result.

        Returns
        -------
        pyspark.sql.DataFrame or pyspark.RDD
            All columns of ``data`` and those of the results, in the order of the rows within each partition. It is
            lazy: rows travel when it is used, as often as it is used, and the cluster has to live until then. For an
            RDD, or with ``objects=True``, an RDD of the results: one for each row, in order within each partition.

            Results of a DataFrame are typed columns all the way. Those of an RDD are pickled by Spark's Python workers,
            and pyspark unpickles them here when ``collect`` or another action brings them: as for every RDD, executors
            have to be trusted.

        Raises
        ------
        ConfigError
            For columns that do not exist or cannot become tensors, and where results cannot be found out.
        FeedError
            If there is no answer to the row that is sent to find out.
        ClusterEnded, NodeFailed
            If the nodes do not run any more.
        """
        return self._runtime.inference.of(data, columns, schema, objects=objects, queue=queue, timeout_s=timeout_s)


def runtime_of(cluster: Cluster) -> ClusterRuntime:
    """Return what runs a cluster: for the notebook's displays, and for tests."""
    return cluster._runtime  # noqa: SLF001 - users do not see it, the rest of the package may
