"""The part of ``ctx`` that is about this node's share: of files, and of datasets that all nodes make alike."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from tfos_lab.errors import ConfigError
from tfos_lab.texts import format_count

if TYPE_CHECKING:
    import tensorflow as tf

    from tfos_lab.node.lock_step import LockStep


class ShareMethods:
    """Methods of `NodeContext` that give each node that trains its share, and any other node everything."""

    rank: int | None
    world_size: int
    _lock_step: LockStep | None

    def absolute_path(self, path: str) -> str:
        """Return ``path`` in full, with its scheme."""
        raise NotImplementedError

    def shard(self, dataset_or_files: tf.data.Dataset | Sequence[Any]) -> tf.data.Dataset | list[Any]:
        """Return this node's part of a dataset, or of a list of files, that is the same on all nodes.

        Of R nodes that train, the one of rank r gets the elements r, r + R, r + 2R, …: every element is on one node.
        Nodes that do not train get all of them. Under a ParameterServerStrategy the chief reads alone, and needs no
        shard.

        Parameters
        ----------
        dataset_or_files : tf.data.Dataset or sequence of paths
            A dataset is best sharded before it is read, shuffled and batched: elements are files or rows then, and
            batches have the size for one node.

        Returns
        -------
        tf.data.Dataset or list
            The dataset is presharded: no strategy divides it again, nor what is made of it by ``map``, ``batch`` and
            so on. Shares differ by an element at most, which may be a step: see `even`.

        Raises
        ------
        ConfigError
            If there are fewer files than nodes that train, if the dataset was shuffled before, in an order that other
            nodes do not share, or if it is neither a dataset nor a list of files.

        Examples
        --------
        >>> def train(args, ctx):
        ...     rows = tf.data.TextLineDataset(args["path"])
        ...     ctx.even(ctx.shard(rows).shuffle(1000).map(parse).batch(32))
        """
        if _is_dataset(dataset_or_files):
            return _shard_dataset(dataset_or_files, self.rank, self.world_size)
        is_sequence = isinstance(dataset_or_files, Sequence) or getattr(dataset_or_files, "ndim", 0) == 1
        if isinstance(dataset_or_files, str | bytes | PurePath) or not is_sequence:
            kind = type(dataset_or_files).__name__
            advice = "give it a tf.data.Dataset or a list of paths; ctx.files(pattern) finds files"
            raise ConfigError([f"ctx.shard({dataset_or_files!r:.80}): a {kind} cannot be divided; {advice}"])
        return self._share("ctx.shard of a list", list(dataset_or_files))

    def files(self, pattern: str) -> list[str]:
        """Return this node's share of the files of a folder or a pattern, on any file system.

        Parameters
        ----------
        pattern : str
            A file, a folder with all below it, or a pattern such as ``"hdfs:///data/train-*.tfrecord"``; resolved as
            `absolute_path` does. Names that begin with ``_`` or ``.`` are left out, as Spark does.

        Returns
        -------
        list of str
            Plain paths of local files, and full addresses of others, as TensorFlow and fsspec open them. All nodes sort
            the names; of R nodes that train, the one of rank r gets the r-th file of each R. Nodes that do not train
            get all files. The node should see the same files as the others do: a shared folder, or a store.

            Files differ in rows, and nodes that train in lock-step must not differ in steps: see `even`. A dataset that
            reads these files by their names is presharded: no strategy divides it again.

        Raises
        ------
        ConfigError
            If there is no such file, if the file system cannot be opened, or for fewer files than nodes that train.

        Examples
        --------
        >>> def train(args, ctx):
        ...     files = ctx.files("/data/train-*.tfrecord")
        ...     ctx.even(tf.data.TFRecordDataset(files).map(parse).batch(64))
        """
        from tfos_lab.data.tfrecords.paths import list_files
        from tfos_lab.node.keras.presharded import remember_own_files

        if not isinstance(pattern, str | PurePath):
            raise ConfigError([f"ctx.files({pattern!r}): give it one path or pattern, as text"])
        share = self._share(f"ctx.files({str(pattern)!r})", list_files(self.absolute_path(str(pattern))))
        if self.rank is not None:
            remember_own_files(share)
        return share

    def even(self, dataset: tf.data.Dataset, remainder: str = "exact") -> tf.data.Dataset:
        """Let all nodes take equally many steps over their own datasets of batches, whatever each of them has.

        Nodes that train in lock-step (under a MultiWorkerMirroredStrategy) wait for one another in each step; one that
        runs out of batches would leave the others waiting forever. They agree on their steps while they read ahead, so
        nobody has to know the number of batches, and it may differ from pass to pass.

        Parameters
        ----------
        dataset : tf.data.Dataset
            Batches of this node's own rows, as many and as large as there are; finite. Every node that trains calls
            this for its dataset, in the same order, and reads it equally often.
        remainder : {"exact", "drop"}
            With ``"exact"``, a pass ends with the last batch of the node that has most: the others go on with filler
            batches. With ``"drop"``, it ends with that of the node that has least, and batches are left unchanged.

        Returns
        -------
        tf.data.Dataset
            Presharded: no strategy divides it again. With ``"exact"``, elements ``(x, y)`` and ``(x, y, w)`` become
            ``(x, y, w)``, and those that are dicts get the key ``sample_weight``; w is float, ``(rows,)``. On a node
            that waits for no other (alone, an evaluator, beside parameter servers) the same with weights of 1.

        Raises
        ------
        ConfigError
            For an endless dataset, and for elements that are no such batches of dense tensors.
        FeedError
            On a node that reads on where another has returned, or has begun the next pass: instead of waiting forever.

        Notes
        -----
        As in `dataset`, weights are multiplied by R·b/G, for R nodes, b rows in this node's batch and G rows of the
        step on all nodes: the mean over nodes of ``mean(w * losses)`` is the mean over all rows of the step. Keras'
        ``fit`` and ``evaluate`` train and report what one process would on the same global batches; in a loop of your
        own, use ``tf.nn.compute_average_loss(losses, sample_weight=w)``. A filler batch is the node's last one again
        (zeros where it has had none), and its rows have the weight -0.0.

        Examples
        --------
        >>> def train(args, ctx):
        ...     files = ctx.files("/data/train-*.tfrecord")
        ...     model.fit(ctx.even(tf.data.TFRecordDataset(files).map(parse).batch(64)), epochs=3)
        """
        if not _is_dataset(dataset):
            kind = type(dataset).__name__
            raise ConfigError([f"ctx.even of a {kind}: give it a tf.data.Dataset of batches"])
        if remainder not in ("exact", "drop"):
            raise ConfigError([f"remainder={remainder!r}: use 'exact' or 'drop'"])
        from tfos_lab.node.feed.even_steps import even_dataset

        return even_dataset(dataset, self._lock_step, remainder)

    def _share(self, asked: str, files: list[Any]) -> list[Any]:
        if self.rank is None:
            return files
        if len(files) < self.world_size:
            count = f"{format_count(len(files), 'file')} for {self.world_size} nodes that train"
            advice = "write as many files as nodes at least, ask for fewer nodes, or divide rows: ctx.shard(dataset)"
            raise ConfigError([f"{asked}: {count}, so that some would get nothing; {advice}"])
        return files[self.rank :: self.world_size]


def _is_dataset(value: Any) -> bool:
    tensorflow = sys.modules.get("tensorflow")  # whoever has a dataset has imported it
    return tensorflow is not None and isinstance(value, tensorflow.data.Dataset)


def _shard_dataset(dataset: tf.data.Dataset, rank: int | None, nodes: int) -> tf.data.Dataset:
    """Return the elements of a node, marked as presharded; all of them without a rank.

    Raises ConfigError if each node would shuffle the dataset in an order of its own before it is divided.
    """
    from tfos_lab.node.keras.presharded import mark_as_presharded, sources_of
    from tfos_lab.node.keras.workers import patch_keras

    patch_keras()  # the function may have imported Keras itself
    if rank is None:
        return dataset
    if nodes > 1 and any(_is_shuffled_by_chance(source) for source in sources_of(dataset)):
        why = "the dataset is shuffled differently on each node, so that rows would be on several nodes or on none"
        advice = "shard it before shuffle(...), or give shuffle (list_files) a seed"
        raise ConfigError([f"ctx.shard(dataset): {why}; {advice}"])
    return mark_as_presharded(dataset.shard(nodes, rank))


def _is_shuffled_by_chance(source: tf.data.Dataset) -> bool:
    """Whether a dataset shuffles without a seed, neither its own nor one of ``tf.random.set_seed``."""
    import tensorflow as tf

    if type(source).__name__ != "_ShuffleDataset" or not tf.executing_eagerly():
        return False
    seeds = [getattr(source, name, 1) for name in ("_seed", "_seed2")]
    return not any(int(seed) for seed in seeds)
