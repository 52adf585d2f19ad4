"""The part of ``ctx`` that is about fed rows: datasets, rows as Python values, and results of an inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfos_lab.core.messages import INPUT_QUEUE, TRAIN, VALIDATION
from tfos_lab.core.roles import Role
from tfos_lab.errors import ConfigError
from tfos_lab.node.context.facts import NodeFacts

if TYPE_CHECKING:
    import tensorflow as tf

    from tfos_lab.node.feed.data_feed import DataFeed


class RowMethods(NodeFacts):
    """Methods of `NodeContext` for rows that are fed to this node."""

    @property
    def epochs(self) -> int:
        """How often the rows are to be read, as given by ``train(epochs=...)`` or ``%%tfos epochs=...``."""
        self._require_rows("ctx.epochs")
        return self._feed.epochs

    def dataset(
        self,
        batch_size: int,
        *,
        split: str = TRAIN,
        features: str | Sequence[str] | None = None,
        label: str | Sequence[str] | Mapping[str, str] | None = None,
        weight: str | None = None,
        shuffle: bool = False,
        seed: int | None = None,
        remainder: str | None = None,
        prefetch: int = 2,
        decode_raw: Mapping[str, tuple[str, Sequence[int]]] | None = None,
    ) -> tf.data.Dataset:
        """Return the rows that are fed to this node as a ``tf.data.Dataset`` of batches.

        Each iteration over it is one epoch. An iteration that ends before its last steps does not count: the next one
        starts with the first row again. All nodes that train in lock-step take the same number of steps.

        Parameters
        ----------
        batch_size : int
            Rows per batch on this node; the global batch is ``batch_size × world_size``.
        split : str
            Which rows: ``"train"``, those that are given as ``data``, or those of a split that is given as
            ``validation``. A split is read as often as the function likes, all its rows once each time.
        features : str or sequence of str, optional
            Columns that make up x; all but label and weight by default.
        label : str, sequence of str, or mapping of str to str, optional
            Column that is y. With it, elements are ``(x, y, w)`` as Keras' ``fit`` takes them, where x is the tensor of
            the one feature, or a dict of several. Without it, elements are a dict of column → tensor. For a model of
            several outputs, a list of columns makes y a tuple, in the order of the outputs, and a dict of output to
            column makes it a dict of outputs; w counts for each of them.
        weight : str, optional
            Column of sample weights, float; 1 for every row by default.
        shuffle : bool
            Shuffle this node's rows, differently in each epoch.
        seed : int, optional
            Makes the order repeatable for rows of files. Other rows come in the order in which Spark's tasks finish,
            which may be another in each run; which node has the last few rows of a partition depends on it, too.
        remainder : {"exact", "pad", "drop"}, optional
            How an epoch ends, see the table; by default as the feed was started, which is ``"exact"`` by default.
        prefetch : int
            Number of batches to prepare ahead; ignored for a stream, whose rows count as read when the function asks
            for the next ones.
        decode_raw : mapping of str to tuple, optional
            Columns of bytes that hold numbers, with their dtype and the shape of one row, as in
            ``{"image": ("uint8", (28, 28))}``: they become tensors of these, ``(rows, 28, 28)``, in this machine's byte
            order. Compressed images are for ``tf.io.decode_image``.

        Returns
        -------
        tf.data.Dataset
            Batches of tensors ``(rows, …)``, and of weights, float32 ``(rows,)`` (in dicts: the key ``sample_weight``).
            TensorFlow's tuning of pipelines is off: with ``tf.data.AUTOTUNE``, your own steps get one call per core.

            In a graph of TensorFlow 1, and after ``tf.compat.v1.disable_eager_execution()``, a loop over it yields the
            same batches as NumPy arrays, for ``feed_dict``. In a graph that is finalized, as in a
            ``MonitoredTrainingSession``, it is an iterable of such batches only. Call it before the session begins
            where TensorFlow is to read it, with ``tf.compat.v1.data.make_initializable_iterator``.

        Raises
        ------
        FeedError
            If the feed fails.
        ConfigError
            If a named column is not fed, and on a parameter server or an evaluator, which are fed no rows.

        Notes
        -----
        ===========  =============================  =============================  ================================
        remainder    rows of a batch                weights                        traces of a ``tf.function``
        ===========  =============================  =============================  ================================
        ``exact``    ``batch_size``, fewer in the   the column's (else 1) times    one more for short batches, if
                     last steps; at least one       R·b/G: 1 in full steps         it takes eager batches; none in
                     (shape ``(None, …)``)                                         Keras' ``fit``
        ``pad``      always ``batch_size``          the same; -0.0 for filler      one
                     (static shape)                 rows
        ``drop``     always ``batch_size``          the column's, else 1           one
                     (static shape)
        ===========  =============================  =============================  ================================

        R nodes read, this batch has b rows, and all batches of the step have G: the mean over nodes of
        ``mean(w * losses)`` is then the mean over all rows of the step. Keras' ``fit`` and ``evaluate`` train and
        report what one process would on the same global batches, for every number of rows. In a loop of your own under
        a strategy, one line does it::

            loss = tf.nn.compute_average_loss(losses, sample_weight=w)

        With ``exact``, a node gets a batch of one filler row (weight -0.0) where a step has fewer rows than there are
        nodes. Filler rows are copies of real ones, which any decoder and model accepts. For inference, batches are
        always filled, and the results for filler rows are left out.
        """
        self._require_rows("ctx.dataset")
        from tfos_lab.node.feed.dataset import DatasetRequest, make_dataset

        request = DatasetRequest(
            batch_size=batch_size,
            split=split,
            features=[features] if isinstance(features, str) else features and list(features),
            label=label,
            weight=weight,
            shuffle=shuffle,
            seed=seed,
            remainder=remainder,
            prefetch=prefetch,
            decode_raw=decode_raw,
        )
        return make_dataset(self._feed, request)

    def validation(
        self,
        batch_size: int,
        *,
        features: str | Sequence[str] | None = None,
        label: str | Sequence[str] | Mapping[str, str] | None = None,
        weight: str | None = None,
        shuffle: bool = False,
        seed: int | None = None,
        remainder: str | None = None,
        prefetch: int = 2,
        decode_raw: Mapping[str, tuple[str, Sequence[int]]] | None = None,
    ) -> tf.data.Dataset:
        """Return the rows that are given as ``validation``: ``ctx.dataset(batch_size, split="validation", ...)``.

        Keras' ``fit(validation_data=...)`` and ``evaluate`` report what one process would on all rows of all nodes.

        Examples
        --------
        >>> def train(args, ctx):
        ...     with ctx.strategy().scope():
        ...         model = args()
        ...     rows, held_out = ctx.dataset(64, label="y"), ctx.validation(64, label="y")
        ...     model.fit(rows, validation_data=held_out, epochs=ctx.epochs, callbacks=ctx.callbacks())
        """
        return self.dataset(
            batch_size,
            split=VALIDATION,
            features=features,
            label=label,
            weight=weight,
            shuffle=shuffle,
            seed=seed,
            remainder=remainder,
            prefetch=prefetch,
            decode_raw=decode_raw,
        )

    def data_feed(
        self,
        train_mode: bool = True,  # noqa: FBT001, FBT002 - TensorFlowOnSpark's signature
        input_mapping: Mapping[str, str] | None = None,
        *,
        queue: str = INPUT_QUEUE,
    ) -> DataFeed:
        """Return the rows that are fed to this node as Python values, whatever they are.

        Parameters
        ----------
        train_mode : bool
            Whether batches go on beyond the end of a partition; not for inference.
        input_mapping : mapping of str to str, optional
            Column to name of a tensor: `DataFeed.next_batch` then returns a dict of lists. The i-th value of a row goes
            to the tensor of the i-th column, in the order of the columns' sorted names.
        queue : str
            Which rows: those that ``cluster.train(queue=...)`` or ``cluster.inference(queue=...)`` sent there.

        Returns
        -------
        DataFeed
            All epochs of all feeds, one after another. The elements of an RDD come as they are, rows of a DataFrame as
            pyspark's `Row` (tuples where there is no pyspark).

        Raises
        ------
        ConfigError
            On a parameter server or an evaluator, which are fed no rows, and for a mapping that is none.

        Examples
        --------
        >>> def train(args, ctx):
        ...     feed = ctx.data_feed()
        ...     while not feed.should_stop():
        ...         lines = feed.next_batch(64)
        """
        self._require_rows("ctx.data_feed")
        from tfos_lab.node.feed.data_feed import DataFeed

        return DataFeed(self._feed.rows(queue), train_mode=train_mode, input_mapping=input_mapping)

    def rows_as_files(self, format: str = "parquet") -> list[str]:  # noqa: A002 - as pandas and Spark call it
        """Write the rows that are fed to this node to files on its own disk, for readers of any library.

        It waits until all rows have arrived. Each call is for the rows of one ``cluster.train``, in their order; after
        the last one, for those again. The rows count as read then, in all epochs.

        Parameters
        ----------
        format : {"parquet", "json", "arrow"}
            Parquet, with row groups of some 16 MB in memory; lines of JSON; or Arrow's IPC files, uncompressed, which
            can be mapped into memory.

        Returns
        -------
        list of str
            At least one path, and one more for each 128 MB in memory. Every row is in one file of one node, and the
            nodes' shares differ by a row at most for each feed. The files are removed when the run ends: what is to
            outlive it belongs in `output_dir`.

        Raises
        ------
        FeedError
            If this cluster is fed no rows, the feed fails, or there is no room on the disk; for Python objects, and
            for streams.
        ConfigError
            On a parameter server or an evaluator, and for any other format.

        Notes
        -----
        What can be fed as columns is what `dataset` reads, too: nulls, and arrays of different lengths in one column,
        are refused, with advice. Types are kept as Spark has them.

        =================  =============================  ==========================================================
        Spark SQL          Parquet and Arrow              JSON
        =================  =============================  ==========================================================
        boolean, numbers   the same types                 numbers; ``"NaN"``, ``"Infinity"``, ``"-Infinity"`` as text
        decimal(p, s)      decimal(p, s)                  numbers with all digits
        string             string                         text
        binary             binary                         text in base64
        date, time         date, time                     ``"2026-11-22"``, ``"13:30:00"``
        timestamp          microseconds, in UTC           ``"2026-11-22T13:30:00Z"``
        timestamp_ntz      microseconds, without a zone   ``"2026-11-22T13:30:00"``
        interval day/time  duration in microseconds (in   text of ISO 8601, such as ``"P1DT2H"``
                           Parquet: an int64)
        array<T>           lists of T, to any depth       lists
        vector (spark.ml)  lists of float64, dense        lists of numbers
        map, struct        refused; of a struct, fields are fed as columns: ``columns=["person.age"]``
        =================  =============================  ==========================================================

        Examples
        --------
        >>> def train(args, ctx):
        ...     import pandas as pd
        ...
        ...     mine = pd.concat(map(pd.read_parquet, ctx.rows_as_files()))
        """
        self._require_rows("ctx.rows_as_files")
        from tfos_lab.node.feed.row_files import check_format

        check_format(format)
        return self._feed.files(self._scratch_folder() / "data" / format, format)

    def _require_rows(self, asked: str) -> None:
        if not Role(self.job_name).trains:
            advice = "give it what it needs as args or in files, and ask where ctx.job_name is 'chief' or 'worker' only"
            raise ConfigError([f"{asked} on {self.node}: rows are fed to the nodes that train; {advice}"])

    def stop_feed(self) -> None:
        """Take no more rows: the feed ends early, on all nodes, and Spark's remaining partitions are skipped."""
        self._feed.stop()

    def put_results(self, batch: Any) -> None:
        """Return the results for the oldest batch of an inference that has none yet; see `Cluster.inference`.

        Parameters
        ----------
        batch : array-like, or mapping of str to array-like
            One result per row of the batch: an array or tensor of shape ``(rows, …)`` becomes the column
            ``prediction``, a dict several columns. Results for filler rows are left out, so ``batch_size`` rows are
            accepted as well.

        Raises
        ------
        FeedError
            If the number of results differs from the number of rows, if there are more batches of results than of
            rows, or if a column has values of several types, such as ``("a", 0.5)``: use a column for each type.

        Examples
        --------
        >>> def infer(args, ctx):
        ...     for batch in ctx.dataset(64):
        ...         ctx.put_results({"double": 2 * batch["x"]})
        """
        self._feed.answers.put(batch)
