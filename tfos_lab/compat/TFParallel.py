"""Runs a function as parallel, independent instances of TensorFlow, each in a process of its own: see `run`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfos_lab.compat import TFSparkNode, util

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["TFSparkNode", "run", "util"]

logger = logging.getLogger(__name__)


def run(
    sc: SparkContext,
    map_fn: Callable[[Any, Any], object],
    tf_args: Any,
    num_executors: int,
    use_barrier: bool = True,
) -> None:
    """Run ``map_fn(tf_args, ctx)`` in ``num_executors`` independent instances; returns when all have ended.

    Parameters
    ----------
    sc : pyspark.SparkContext
        Whose executors to use.
    map_fn : callable
        Runs in each instance, as by itself: without TF_CONFIG, with the GPUs that it is to use in
        CUDA_VISIBLE_DEVICES. ``ctx`` has ``worker_num``, ``executor_id``, ``num_workers``, ``defaultFS`` and
        ``absolute_path``. What it returns is dropped.
    tf_args : object
        What it gets as ``args``. ``num_gpus`` among them is how many GPUs an instance takes; 1 by default, where the
        host has any. A list is ``sys.argv`` in the instances, too.
    num_executors : int
        How many instances.
    use_barrier : bool
        All instances go on at once. Without it, there may be more of them than task slots: the others wait.

    Raises
    ------
    NotAllAtOnce
        With ``use_barrier``, where there are fewer task slots than instances; nothing is started.
    ParallelFailed
        If instances failed: with the remote traceback of each. The others go on to their ends.
    """
    from tfos_lab.compat.cluster import run_instances

    logger.info("Running %s parallel instances", num_executors)
    run_instances(sc, map_fn, tf_args, num_executors, use_barrier=use_barrier)
