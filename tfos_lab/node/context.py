"""``ctx``: what the user's function sees of its node and of the cluster around it.

The attributes of TensorFlowOnSpark's ``TFNodeContext`` are all here under their names.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_lab import messages as m
from tfos_lab.core.paths import hadoop_path, is_local, split_scheme
from tfos_lab.core.roles import Role, count_training
from tfos_lab.core.states import NodeState
from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    import tensorflow as tf

    from tfos_lab.node.feed.reader import FeedReader


class NodeContext:
    """One node's view of the cluster; the second argument of ``map_fun(args, ctx)``.

    Attributes
    ----------
    job_name : str
        ``"chief"``, ``"worker"``, ``"ps"`` or ``"evaluator"``.
    task_index : int
        Number of this node within its job, from 0.
    cluster_spec : dict of str to list of str
        ``{job: ["host:port", ...]}``, as ``tf.train.ClusterSpec`` takes it.
    num_workers : int
        Nodes that train: the chief and the workers.
    worker_num, executor_id : int
        Number of this node within the whole cluster, from 0 (TensorFlowOnSpark's names, with its meaning).
    is_chief : bool
        Whether this node leads: it saves models and writes event files.
    gpus : list of str
        Indices of the GPUs of this node; empty where there are none or all are visible.
    log_dir : str
        Where event files go; shared by all nodes where the file system is.
    event_dir : str
        This node's own folder in it, and another one after each restart: TensorBoard shows each as a run of its own.
    restart : int
        How often the nodes have been started again after a lost one; 0 in the first attempt.
    backup_dir : str
        Where to keep what a restart goes on from, shared by all nodes; empty unless ``restarts`` is given.
    args : object
        What was passed as ``args``.
    """

    def __init__(
        self,
        start: m.Start,
        feed: FeedReader,
        say: Callable[[m.FromAgent], None],
        finish: threading.Event,
    ) -> None:
        self._feed = feed
        self._send = say
        self._finish = finish
        self._step: int | None = None
        self.job_name = start.job_name
        self.task_index = start.task_index
        self.cluster_spec = start.cluster_spec
        self.num_workers = count_training(start.cluster_spec)
        self.worker_num = self.executor_id = start.rank
        self.is_chief = start.is_chief
        self.log_dir = start.log_dir
        self.grace_s = start.grace_s
        self.args: Any = None
        self.defaultFS = start.default_fs or "file://"
        self.working_dir = start.working_dir or str(Path.cwd())
        self.restart = start.restart
        again = f"-restart-{self.restart}" if self.restart else ""
        self.event_dir = f"{self.log_dir.rstrip('/')}/{self.node.replace(':', '-')}{again}"
        self.backup_dir = start.backup_dir
        self._output_dir = start.output_dir
        self._has_opened_output = False

    def __repr__(self) -> str:
        return f"<{self.node} of {sum(map(len, self.cluster_spec.values()))} nodes>"

    @property
    def node(self) -> str:
        """This node's name, such as ``"worker:1"``."""
        return f"{self.job_name}:{self.task_index}"

    @property
    def gpus(self) -> list[str]:
        """Indices of this node's GPUs."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return [gpu for gpu in visible.split(",") if gpu and gpu != "-1"]

    @property
    def epochs(self) -> int:
        """How often the rows are to be read, as ``train(epochs=...)`` or ``%%tfos epochs=...`` said."""
        self._require_rows("ctx.epochs")
        return self._feed.epochs

    # ---- training ---------------------------------------------------------------------------------------------------

    def strategy(self) -> tf.distribute.Strategy:
        """Return the ``tf.distribute`` strategy that fits the shape of the cluster; see `tfos_lab.node.strategy`."""
        from tfos_lab.node.strategy import strategy_for

        return strategy_for(self.cluster_spec, self.job_name, self.task_index, self.serve)

    def dataset(
        self,
        batch_size: int,
        features: str | Sequence[str] | None = None,
        label: str | None = None,
        weight: str | None = None,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        remainder: str | None = None,
        prefetch: int = 2,
    ) -> tf.data.Dataset:
        """Return the rows that are fed to this node as a ``tf.data.Dataset`` of ready batches.

        Each iteration over it is one epoch; one that is left before its last steps does not count, and the next begins
        with the first row again. All nodes that train in lock-step take the same number of steps.

        Parameters
        ----------
        batch_size : int
            Rows per batch on this node; the global batch is ``batch_size × num_workers``.
        features : str or sequence of str, optional
            Columns that make up x; all but label and weight by default.
        label : str, optional
            Column that is y. With it, elements are ``(x, y, w)`` as Keras' ``fit`` takes them, where x is the one
            feature's tensor, or a dict of several. Without it, elements are a dict of column → tensor.
        weight : str, optional
            Column of sample weights, float; 1 for every row by default.
        shuffle : bool
            Permute this node's rows anew in each epoch.
        seed : int, optional
            Makes the permutation repeatable.
        remainder : {"exact", "pad", "drop"}, optional
            How an epoch ends; what the feed was started with by default (``"exact"``, see the table).
        prefetch : int
            Batches prepared ahead; none of a stream, whose rows count when the function asks for the next ones.

        Returns
        -------
        tf.data.Dataset
            Batches of tensors ``(rows, …)``, and of weights, float32 ``(rows,)`` (in dicts: the key ``sample_weight``).
            TensorFlow's tuning of pipelines is off: steps of your own with ``tf.data.AUTOTUNE`` get a call per core.

        Raises
        ------
        FeedError
            If a named column is not fed, or the feed fails.
        ConfigError
            On a parameter server or an evaluator, which are fed no rows.

        Notes
        -----
        ===========  =============================  =============================  ================================
        remainder    rows of a batch                weights                        traces of a ``tf.function``
        ===========  =============================  =============================  ================================
        ``exact``    ``batch_size``, fewer in the   the column's (else 1) times    one more for short batches, if
                     last steps; at least one       R·b/G: 1 in full steps         it takes eager batches; none in
                     (shape ``(None, …)``)                                         Keras' ``fit``
        ``pad``      always ``batch_size``          the same; -0.0 for rows that   one
                     (static shape)                 only fill up
        ``drop``     always ``batch_size``          the column's, else 1           one
                     (static shape)
        ===========  =============================  =============================  ================================

        R nodes read, this batch has b rows, and all batches of the step G: the mean over nodes of ``mean(w * losses)``
        is then the mean over all rows of the step. Keras' ``fit`` and ``evaluate`` train and show what one process
        would on the same global batches, for every number of rows. In a loop of your own under a strategy, one line
        does it::

            loss = tf.nn.compute_average_loss(losses, sample_weight=w)

        With ``exact``, a batch that only fills up (one row, weight -0.0) comes where a step has fewer rows than there
        are nodes. Rows that only fill up are copies of others, which any decoder and model takes. For inference,
        batches are always filled up, and results for the rows that only do so are left out.
        """
        self._require_rows("ctx.dataset")
        from tfos_lab.node.feed.dataset import DatasetRequest, make_dataset

        request = DatasetRequest(
            batch_size=batch_size,
            features=[features] if isinstance(features, str) else features and list(features),
            label=label,
            weight=weight,
            shuffle=shuffle,
            seed=seed,
            remainder=remainder,
            prefetch=prefetch,
        )
        return make_dataset(self._feed, request)

    def _require_rows(self, asked: str) -> None:
        if not Role(self.job_name).is_fed:
            advice = "give it what it needs as args or in files, and ask where ctx.job_name is 'chief' or 'worker' only"
            raise ConfigError([f"{asked} on {self.node}: rows are fed to the nodes that train; {advice}"])

    def stop_feed(self) -> None:
        """Take no more rows: the feed ends early, on all nodes, and Spark's remaining partitions are skipped."""
        self._feed.stop()

    def put_results(self, batch: Any) -> None:
        """Give the results for the oldest batch of an inference that has none yet; see `Cluster.inference`.

        Parameters
        ----------
        batch : array-like, or mapping of str to array-like
            One result per row of the batch: an array or tensor of shape ``(rows, …)`` becomes the column
            ``prediction``, a dict several columns. Results for rows that only fill up are left out, so it may have
            ``batch_size`` rows as well.

        Raises
        ------
        FeedError
            For another number of results than rows, more batches of results than batches of rows, and a column whose
            values are of several types, such as ``("a", 0.5)``: each type needs a column of its own.

        Examples
        --------
        >>> def infer(args, ctx):
        ...     for batch in ctx.dataset(64):
        ...         ctx.put_results({"double": 2 * batch["x"]})
        """
        self._feed.answers.put(batch)

    def report(self, step: int | None = None, *, total_steps: int | None = None, **metrics: float) -> None:
        """Show progress and metrics in the notebook.

        Parameters
        ----------
        step : int, optional
            Steps done so far; counts up by one with each call by default.
        total_steps : int, optional
            How many there will be; gives the progress bar its end.
        **metrics : float
            Whatever is worth watching; scalars, tensors of one element, or NumPy scalars.
        """
        self._step = step if step is not None else (self._step or 0) + 1
        numbers = {name: float(value) for name, value in metrics.items()}
        self._send(
            m.Reported(
                rank=self.worker_num,
                step=int(self._step),
                total_steps=total_steps,
                metrics=numbers,
                time_s=time.time(),
            )
        )

    def callbacks(self) -> list[Any]:
        """Return Keras callbacks for ``fit``: progress and metrics to the notebook, TensorBoard on the chief.

        Where the cluster may be started again (``restarts``), also a backup of the training after each epoch, from
        which ``fit`` then goes on. Under a ``ParameterServerStrategy`` progress is told after each epoch, elsewhere
        also between.

        Raises
        ------
        ConfigError
            If event files cannot be written to ``log_dir`` on this host.
        """
        if self.is_chief and is_local(self.event_dir):
            self._check_event_dir(Path(split_scheme(self.event_dir)[2]))
        from tfos_lab.node.keras.callbacks import make_callbacks

        return make_callbacks(
            self.report,
            event_dir=self.event_dir if self.is_chief else None,
            backup_dir=self.backup_dir,
            is_chief=self.is_chief,
        )

    def _check_event_dir(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            host = socket.gethostname()
            why = f"event files cannot be written there on {host} ({error.strerror})"
            raise ConfigError([f"log_dir='{self.log_dir}': {why}; give a folder that {host} can write to"]) from None

    # ---- paths ------------------------------------------------------------------------------------------------------

    def absolute_path(self, path: str) -> str:
        """Return ``path`` as Hadoop would understand it: relative to the user's home on the default file system."""
        return hadoop_path(path, self.defaultFS, self.working_dir)

    @property
    def output_dir(self) -> str:
        """A folder on this node, ready to be written to, for what is to outlive the run: models, checkpoints, plots.

        What the chief writes there is in ``cluster.run_dir / "output"`` of the notebook when the run has ended, from
        any host, and with ``output="all"`` what other nodes write is in a folder of their own in that, such as
        ``worker-0``; by default theirs goes with the node. It comes home as well if the function fails, is stopped or
        is killed. Files on other hosts are brought while the function works, some seconds after they were last
        changed, and at its end; symbolic links are not, and ``output_limit_bytes`` is the most that a node brings.

        After a restart, files of the nodes before are still in the notebook's folder, and new ones of the same names
        replace them. What the function itself is to go on from belongs into ``backup_dir``.

        Examples
        --------
        >>> def train(args, ctx):
        ...     import keras
        ...
        ...     with ctx.strategy().scope():
        ...         model = args()
        ...     best = keras.callbacks.ModelCheckpoint(f"{ctx.output_dir}/best.keras", "loss", save_best_only=True)
        ...     model.fit(ctx.dataset(32, label="label"), epochs=ctx.epochs, callbacks=[*ctx.callbacks(), best])
        ...     ctx.save_model(model)
        """
        if not self._output_dir:
            self._output_dir = tempfile.mkdtemp(prefix="tfos-output-")
        Path(self._output_dir).mkdir(parents=True, exist_ok=True)
        if not self._has_opened_output:
            self._has_opened_output = True
            self._send(m.OutputOpened(rank=self.worker_num))
        return self._output_dir

    def save_model(self, model: Any) -> str:
        """Save a trained model for the notebook, where `Cluster.model` loads it and `Cluster.model_path` is its file.

        All workers may call it, and the chief's model counts. Under a MultiWorkerMirroredStrategy all workers should,
        and with tf_keras they must: it asks them all for the values of some variables. A later call replaces what an
        earlier one has saved, as soon as it is whole.

        Parameters
        ----------
        model : keras.Model, tf_keras.Model or tf.Module
            Becomes ``model.keras`` in `output_dir`; a ``tf.Module`` that is no Keras model becomes a SavedModel in
            ``model``.

        Returns
        -------
        str
            Where it is on this node; on nodes whose output stays there, it goes with the node.

        Raises
        ------
        ConfigError
            For anything else.
        """
        from tfos_lab.data.model_files import save_model

        return save_model(model, self.output_dir)

    def model_dir(self, path: str) -> str:
        """Return where this node may save to ``path``: there on the chief, in a scratch folder elsewhere.

        All workers of a MultiWorkerMirroredStrategy must save, and only the chief's copy is wanted. For what the
        notebook is to have, use `save_model` and `output_dir`: this is for folders that you know of. Where the path
        lies on a disk of the chief's host that the notebook does not share, the cell says so.

        Parameters
        ----------
        path : str
            A file or folder. A relative one is below `working_dir` (on executors: Spark's folder for the job, which
            Spark removes), or in the user's home where Spark's file system is a distributed one.

        Returns
        -------
        str
            A plain local path whose parent folder is there, or an address such as ``hdfs://...`` as it is.

        Raises
        ------
        ConfigError
            If the parent folder cannot be made on this host.

        Examples
        --------
        >>> model.save(ctx.model_dir("/shared/mnist.keras"))  # doctest: +SKIP
        >>> model.save_weights(ctx.model_dir("/shared/mnist.weights.h5"))  # doctest: +SKIP
        >>> model.export(ctx.model_dir("/shared/mnist"))  # a SavedModel  # doctest: +SKIP
        """
        if self.is_chief:
            place = self.absolute_path(path)
            if not is_local(place):
                return place
            place = split_scheme(place)[2]
            self._make_parent(path, Path(place))
            self._send(m.SavesTo(rank=self.worker_num, path=place))
            return place
        scratch = os.environ.get("TFOS_LAB_SCRATCH") or tempfile.mkdtemp(prefix="tfos-model-")
        copy = Path(scratch) / "model" / Path(path).name
        self._make_parent(path, copy)
        return str(copy)

    def _make_parent(self, path: str, place: Path) -> None:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            host = socket.gethostname()
            why = f"{place.parent} cannot be made on {host} ({error.strerror})"
            advice = (
                "save below ctx.output_dir, which comes to the notebook, or give a folder that the chief can write to"
            )
            raise ConfigError([f"ctx.model_dir({path!r}): {why}; {advice}"]) from None

    # ---- the end ----------------------------------------------------------------------------------------------------

    @property
    def training_done(self) -> bool:
        """Whether all training nodes have returned; an evaluator's loop may end then."""
        return self._finish.is_set()

    def wait_for_training(self, timeout_s: float | None = None) -> bool:
        """Wait until all training nodes have returned; what a parameter server does for a living.

        Parameters
        ----------
        timeout_s : float, optional
            The longest to wait, in seconds; a node that trains itself needs one.

        Returns
        -------
        bool
            Whether they have.

        Raises
        ------
        ConfigError
            On a node that trains, without a time-out: it would wait for its own return.
        """
        if timeout_s is None and Role(self.job_name).trains:
            advice = "call it where ctx.job_name is 'ps' or 'evaluator', or give it timeout_s"
            raise ConfigError(
                [f"ctx.wait_for_training() on {self.node}: it trains and would wait for itself; {advice}"]
            )
        return self._finish.wait(timeout_s)

    def serve(self) -> None:
        """Tell the notebook that this node only serves others, and wait until they are done."""
        self._send(m.Progressed(rank=self.worker_num, state=NodeState.SERVING, pid=os.getpid()))
        self._finish.wait()

    def flush(self) -> None:
        """Send what is still held back."""
        self._feed.flush()
