"""What runs in each instance of `TFParallel.run`: makes its context, and calls the program's function."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_lab.compat import util
from tfos_lab.compat.TFSparkNode import TFNodeContext

if TYPE_CHECKING:
    from tfos_lab.node.context.context import NodeContext


@dataclass(frozen=True)
class InstanceSettings:
    """What all instances of one call have in common."""

    num_workers: int
    default_fs: str
    working_dir: str
    num_gpus: int


def run_instance(
    map_fn: Callable[[Any, Any], object], settings: InstanceSettings, args: Any, worker_num: int, native: NodeContext
) -> None:
    """Call the function in one instance. What it returns is dropped: it need not be sendable."""
    if not native.gpus:  # else Spark has assigned them
        util.single_node_env(settings.num_gpus, worker_num, [])
    ctx = TFNodeContext(worker_num, defaultFS=settings.default_fs, working_dir=settings.working_dir)
    ctx.num_workers = settings.num_workers
    ctx._native = native  # noqa: SLF001 - the constructor's parameters are TFoS's
    if isinstance(args, list):
        sys.argv = args
    map_fn(args, ctx)
