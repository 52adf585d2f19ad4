"""What `tfos_lab.compat.MirroredStrategyRunner` does on the driver, with `tfos_lab.driver`. Nodes do without it."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from tfos_lab.core.config import ClusterOptions
from tfos_lab.data.frames import is_connect
from tfos_lab.errors import ConfigError
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.node.strategy import TrainFnSettings, checked_gpus, run_train_fn
from tfos_lab.notebook.start import run as run_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_IGNORE_SSL = "tensorflow.spark.distributor.ignoreSsl"


@dataclass(kw_only=True)
class Training:
    """Where a function trains, and how; see `MirroredStrategyRunner` for the first five.

    It trains by the active session, or a new one, on ``num_tasks`` nodes.
    """

    num_slots: int
    local_mode: bool
    use_gpu: bool
    gpu_resource_name: str
    use_custom_strategy: bool
    spark: SparkSession = field(init=False)
    num_tasks: int = field(init=False)

    def __post_init__(self) -> None:
        from pyspark.sql import SparkSession

        self.spark = spark_session.active_session() or SparkSession.builder.getOrCreate()
        self.num_tasks = 1 if self.local_mode else self.count_tasks()

    def count_tasks(self) -> int:
        """Return how many Spark tasks it takes."""
        return math.ceil(self.num_slots / self._gpus_per_task()) if self.use_gpu else self.num_slots

    def _gpus_per_task(self) -> int:
        key = f"spark.task.resource.{self.gpu_resource_name}.amount"
        amount = spark_session.conf(self.spark, key)
        if not amount:
            raise ConfigError(
                [
                    (
                        f"use_gpu=True, but Spark does not assign GPUs to tasks: '{key}' was not found in its "
                        "configuration. Set it and the other settings of GPU-aware scheduling, give another "
                        "gpu_resource_name, or train without GPUs with use_gpu=False"
                    )
                ]
            )
        if not amount.isdecimal() or int(amount) < 1:
            raise ConfigError([f"'{key}' is {amount} in Spark's configuration: a whole number from 1 on is needed"])
        return int(amount)

    def run(self, train_fn: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the function on each worker; see `MirroredStrategyRunner.run`."""
        options = self._local_options() if self.local_mode else self._distributed_options()
        settings = TrainFnSettings(
            num_slots=self.num_slots,
            num_tasks=self.num_tasks,
            gpu_resource=self.gpu_resource_name if self._spans_hosts and self.use_gpu else "",
            makes_strategy=not self.use_custom_strategy,
            sets_tf_config=not self.local_mode,
        )
        function = functools.partial(run_train_fn, train_fn, settings)
        with run_cluster(function, kwargs, spark=self.spark, show=False, **options) as cluster:
            logger.info("Training in progress; what the workers print is in %s", cluster.run_dir)
            return cluster.wait()["worker:0"]

    @property
    def _spans_hosts(self) -> bool:
        return not self.local_mode and not spark_session.is_local(self.spark)

    def _distributed_options(self) -> ClusterOptions:
        self._check_encryption()
        options = _options(cluster_size=self.num_tasks)
        if not self.use_gpu:
            options["env"] = {"CUDA_VISIBLE_DEVICES": ""}
        elif not self._spans_hosts:
            options["gpus"] = self._gpus_per_task()
        return options

    def _local_options(self) -> ClusterOptions:
        if not self.use_gpu and self.num_slots > 1:
            raise ConfigError(
                [f"num_slots={self.num_slots}: local mode without GPUs runs on one machine; use num_slots=1"]
            )
        gpus = self._driver_gpus() if self.use_gpu else []
        return _options(cluster_size=1, local="processes", env={"CUDA_VISIBLE_DEVICES": ",".join(gpus)})

    def _driver_gpus(self) -> list[str]:
        name = self.gpu_resource_name
        resources = {} if is_connect(self.spark) else self.spark.sparkContext.resources
        if name not in resources:
            raise ConfigError(
                [
                    (
                        f"use_gpu=True, but Spark has assigned no resource '{name}' to the driver: set "
                        f"spark.driver.resource.{name}.amount and .discoveryScript, give another gpu_resource_name, or "
                        "train without GPUs with use_gpu=False"
                    )
                ]
            )
        gpus = checked_gpus(name, list(resources[name].addresses))
        if self.num_slots > len(gpus):
            raise ConfigError(
                [f"num_slots={self.num_slots}: local mode needs as many GPUs, and the driver has {len(gpus)}"]
            )
        return gpus[: self.num_slots]

    def _check_encryption(self) -> None:
        """Raise if the user expects encrypted connections: those between TensorFlow's workers are not."""
        if not _flag(self.spark, "spark.ssl.enabled"):
            return
        told = (
            "spark.ssl.enabled is set, but TensorFlow's workers send gradients and variables to one another unencrypted"
        )
        if not _flag(self.spark, _IGNORE_SSL):
            raise ConfigError([f"{told}. Set '{_IGNORE_SSL}' to 'true' in Spark's configuration to train nevertheless"])
        logger.warning("%s, as '%s' allows", told, _IGNORE_SSL)


def _options(**options: Unpack[ClusterOptions]) -> ClusterOptions:
    """Return options of a cluster whose nodes are all called workers."""
    return {"master_node": None, "name": "MirroredStrategy", **options}


def _flag(spark: SparkSession, key: str) -> bool:
    text = spark_session.conf(spark, key, "false").lower()
    if text not in ("true", "false"):
        raise ConfigError([f"'{key}' is {text!r} in Spark's configuration: true or false is needed"])
    return text == "true"
