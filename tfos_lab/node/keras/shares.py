"""This node's part of a dataset that all nodes make alike; see `NodeContext.shard`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfos_lab.errors import ConfigError
from tfos_lab.node.keras.presharded import mark_as_presharded, sources_of
from tfos_lab.node.keras.workers import patch_keras

if TYPE_CHECKING:
    import tensorflow as tf


def shard_dataset(dataset: tf.data.Dataset, rank: int | None, nodes: int) -> tf.data.Dataset:
    """Return the elements of a node, marked as presharded; all of them without a rank.

    Raises
    ------
    ConfigError
        If each node would shuffle the dataset in an order of its own before it is divided.
    """
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
