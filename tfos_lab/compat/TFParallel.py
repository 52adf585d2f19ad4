"""Runs a function as parallel, independent instances of TensorFlow, each in a process of its own: see `run`."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_lab.compat import TFSparkNode, util
from tfos_lab.core.options import is_int
from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    from pyspark import SparkContext

    from tfos_lab.node.context.context import NodeContext

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
        What it gets as ``args``. ``num_gpus`` among them says how many GPUs an instance takes; 1 by default, where the
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
    from tfos_lab.compat.driver.start import default_fs_of, gpus_wanted, session_of
    from tfos_lab.driver.parallel.start import ParallelPlan
    from tfos_lab.notebook.parallel import run_all

    if not is_int(num_executors) or num_executors < 1:
        raise ConfigError([f"num_executors={num_executors!r}: a whole number of instances, 1 or more, is needed"])
    logger.info("Running %s parallel instances", num_executors)
    session, gpus = session_of(sc), gpus_wanted(tf_args)
    instance = _Instance(
        num_workers=num_executors,
        default_fs=default_fs_of(session),
        working_dir=os.getcwd(),  # noqa: PTH109 - a string
        num_gpus=1 if gpus is None else gpus,
    )
    work = functools.partial(instance.run, map_fn, tf_args)
    run_all(work, range(num_executors), ParallelPlan(at_once=bool(use_barrier)), spark=session, name="TFParallel")


@dataclass(frozen=True)
class _Instance:
    """What all instances of one call have in common."""

    num_workers: int
    default_fs: str
    working_dir: str
    num_gpus: int

    def run(self, map_fn: Callable[[Any, Any], object], args: Any, worker_num: int, native: NodeContext) -> None:
        """Call the function in one instance. What it returns is dropped: it need not be sendable."""
        if not native.gpus:  # else Spark has assigned them
            util.single_node_env(self.num_gpus, worker_num, [])
        ctx = TFSparkNode.TFNodeContext(worker_num, defaultFS=self.default_fs, working_dir=self.working_dir)
        ctx.num_workers = self.num_workers
        ctx._native = native  # noqa: SLF001 - the constructor's parameters are TFoS's
        if isinstance(args, list):
            sys.argv = args
        map_fn(args, ctx)
