"""Runs a training function under `MultiWorkerMirroredStrategy`: what `MirroredStrategyRunner` does on a node."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_lab.core.roles import tf_config
from tfos_lab.errors import ConfigError
from tfos_lab.node.spark_task import task_resources

if TYPE_CHECKING:
    from tfos_lab.node.context.context import NodeContext


@dataclass(frozen=True, kw_only=True)
class TrainFnSettings:
    """How a node runs the function."""

    # How many GPUs, or workers without any, train; and how many nodes there are for them.
    num_slots: int
    num_tasks: int
    # Spark's name of the GPUs that each task has got; "" to leave CUDA_VISIBLE_DEVICES as it is.
    gpu_resource: str = ""
    # Whether the function runs in the scope of a strategy that is made for it.
    makes_strategy: bool = True
    # Whether the node is a worker of a cluster, also of one worker.
    sets_tf_config: bool = True


def run_train_fn(
    train_fn: Callable[..., Any], settings: TrainFnSettings, kwargs: Mapping[str, Any], ctx: NodeContext
) -> Any:
    """Call the function on a node; returns what it returns on the first one, and None elsewhere."""
    if name := settings.gpu_resource:
        # Of the GPUs that Spark gave to this task, as many as fall to it of all.
        wanted = settings.num_slots // settings.num_tasks + (ctx.task_index < settings.num_slots % settings.num_tasks)
        found = task_resources().get(name, [])
        if len(found) < wanted:
            raise ConfigError([f"Spark gave {len(found)} of the resource '{name}' to this task, which needs {wanted}"])
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(checked_gpus(name, found)[:wanted])
    if settings.sets_tf_config:
        os.environ["TF_CONFIG"] = tf_config(ctx.cluster_spec, ctx.job_name, ctx.task_index)
    if settings.makes_strategy:
        import tensorflow as tf

        with tf.distribute.MultiWorkerMirroredStrategy().scope():
            value = train_fn(**kwargs)
    else:
        value = train_fn(**kwargs)
    return value if ctx.task_index == 0 else None


def checked_gpus(name: str, addresses: list[str]) -> list[str]:
    """Return a resource's addresses if they can stand in CUDA_VISIBLE_DEVICES.

    Raises ConfigError if they are not numbers, as a discovery script reports them.
    """
    if all(address.isdecimal() and str(int(address)) == address for address in addresses):
        return addresses
    raise ConfigError(
        [
            (
                f"the GPU addresses {addresses} of the resource '{name}' are not all in the format that "
                "CUDA_VISIBLE_DEVICES takes: the discovery script has to report indices without padding, such as "
                f'{{"name": "{name}", "addresses": ["0", "1"]}}'
            )
        ]
    )
