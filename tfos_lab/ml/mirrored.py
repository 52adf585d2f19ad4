"""`MirroredStrategyRunner`: a training function on several Spark tasks, with one copy of the model on each.

Constructor, `MirroredStrategyRunner.run` and errors mean what they mean in spark-tensorflow-distributor.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from tfos_lab.core.config import ClusterOptions
from tfos_lab.core.options import is_int
from tfos_lab.data.frames import is_connect
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.engine.start import run as run_cluster
from tfos_lab.errors import ConfigError
from tfos_lab.node.train_fn import TrainFnSettings, checked_gpus, run_train_fn

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_IGNORE_SSL = "tensorflow.spark.distributor.ignoreSsl"


class MirroredStrategyRunner:
    """Trains synchronously on several workers, each with a copy of the model, which share their gradients.

    Parameters
    ----------
    num_slots : int
        How many GPUs train in all, or how many Spark tasks where there are no GPUs. In local mode, how many GPUs of
        the driver; 1 without GPUs.
    local_mode : bool
        Run the function on the driver's machine, in a process of its own, instead of Spark's executors.
    use_gpu : bool
        Train with the GPUs that Spark assigns to the tasks, or in local mode to the driver; else without any.
    gpu_resource_name : str
        Spark's name for them, as in ``spark.task.resource.<name>.amount``.
    use_custom_strategy : bool
        The function makes a ``tf.distribute`` strategy itself; TF_CONFIG is set. Otherwise it runs in the scope of a
        ``MultiWorkerMirroredStrategy``, and needs no code for distributed training.

    Raises
    ------
    ConfigError
        For less than one slot, and for GPUs that Spark has not been configured for.

    Examples
    --------
    >>> runner = MirroredStrategyRunner(num_slots=4, use_gpu=False)  # doctest: +SKIP
    >>> runner.run(train, epochs=3)  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        num_slots: int,
        local_mode: bool = False,
        use_gpu: bool = True,
        gpu_resource_name: str = "gpu",
        use_custom_strategy: bool = False,
    ) -> None:
        if not is_int(num_slots) or num_slots <= 0:
            raise ConfigError([f"num_slots={num_slots!r}: a whole number is needed that is not less than 1"])
        self._num_slots = num_slots
        self._local_mode = local_mode
        self._use_gpu = use_gpu
        self._gpu_resource_name = gpu_resource_name
        self._use_custom_strategy = use_custom_strategy
        self._spark = _session()
        logger.info("Doing %s training...", "GPU" if use_gpu else "CPU")
        self._num_tasks = 1
        if local_mode:
            logger.warning("The function will run on the driver's machine, and share it with whatever else runs there.")
        else:
            self._num_tasks = self.get_num_tasks()
            logger.info("Will run with %s Spark tasks.", self._num_tasks)

    @property
    def sc(self) -> SparkContext:
        """The SparkContext."""
        return self._spark.sparkContext

    def get_num_tasks(self) -> int:
        """Return how many Spark tasks train.

        Raises
        ------
        ConfigError
            If GPUs are wanted, and Spark does not give any to its tasks.
        """
        return math.ceil(self._num_slots / self._gpus_per_task()) if self._use_gpu else self._num_slots

    def _gpus_per_task(self) -> int:
        key = f"spark.task.resource.{self._gpu_resource_name}.amount"
        amount = spark_session.conf(self._spark, key)
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

    def run(self, train_fn: Callable[..., Any], **kwargs: Any) -> Any:
        """Call ``train_fn(**kwargs)`` on each worker; returns what the first one returns.

        Parameters
        ----------
        train_fn : callable
            Runs in a process of its own on each worker. Datasets are shared out among the workers by
            ``tf.distribute``, as its option ``auto_shard_policy`` says.
        **kwargs
            What it is called with.

        Returns
        -------
        object
            Plain data, arrays and tables as they are; a Keras ``History`` as its dict; see the guide for others.

        Raises
        ------
        ConfigError
            If the driver has too few GPUs in local mode; if Spark encrypts its connections, which TensorFlow's workers
            do not.
        NotEnoughSlots, NotEnoughRoom, PayloadError
            Before anything is started.
        NodeFailed
            With the remote traceback of the worker that failed.
        """
        options = self._local_options() if self._local_mode else self._distributed_options()
        settings = TrainFnSettings(
            num_slots=self._num_slots,
            num_tasks=self._num_tasks,
            gpu_resource=self._gpu_resource_name if self._spans_hosts and self._use_gpu else "",
            makes_strategy=not self._use_custom_strategy,
            sets_tf_config=not self._local_mode,
        )
        function = functools.partial(run_train_fn, train_fn, settings)
        with run_cluster(function, kwargs, spark=self._spark, **options) as cluster:
            logger.info("Training in progress; what the workers print is in %s", cluster.run_dir)
            value = cluster.wait()["worker:0"]
        logger.info("Training with %s slots is complete!", self._num_slots)
        return value

    @property
    def _spans_hosts(self) -> bool:
        return not self._local_mode and not spark_session.is_local(self._spark)

    def _distributed_options(self) -> ClusterOptions:
        self._check_encryption()
        options = _options(cluster_size=self._num_tasks)
        if not self._use_gpu:
            options["env"] = {"CUDA_VISIBLE_DEVICES": ""}
        elif not self._spans_hosts:
            options["gpus"] = self._gpus_per_task()
        return options

    def _local_options(self) -> ClusterOptions:
        if not self._use_gpu and self._num_slots > 1:
            raise ConfigError(
                [f"num_slots={self._num_slots}: local mode without GPUs runs on one machine; use num_slots=1"]
            )
        gpus = self._driver_gpus() if self._use_gpu else []
        return _options(cluster_size=1, local="processes", env={"CUDA_VISIBLE_DEVICES": ",".join(gpus)})

    def _driver_gpus(self) -> list[str]:
        """Return the GPUs of the driver to train with."""
        name = self._gpu_resource_name
        resources = {} if is_connect(self._spark) else self.sc.resources
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
        if self._num_slots > len(gpus):
            raise ConfigError(
                [f"num_slots={self._num_slots}: local mode needs as many GPUs, and the driver has {len(gpus)}"]
            )
        return gpus[: self._num_slots]

    def _check_encryption(self) -> None:
        """Raise if the user expects encrypted connections: those between TensorFlow's workers are not."""
        if not _flag(self._spark, "spark.ssl.enabled"):
            return
        told = (
            "spark.ssl.enabled is set, but TensorFlow's workers send gradients and variables to one another unencrypted"
        )
        if not _flag(self._spark, _IGNORE_SSL):
            raise ConfigError([f"{told}. Set '{_IGNORE_SSL}' to 'true' in Spark's configuration to train nevertheless"])
        logger.warning("%s, as '%s' allows", told, _IGNORE_SSL)


def _options(**options: Unpack[ClusterOptions]) -> ClusterOptions:
    """Return options of a cluster whose nodes are all called workers."""
    return {"master_node": None, "name": "MirroredStrategy", **options}


def _session() -> SparkSession:
    """Return the active session; one is made where there is none."""
    from pyspark.sql import SparkSession

    return spark_session.active_session() or SparkSession.builder.getOrCreate()


def _flag(spark: SparkSession, key: str) -> bool:
    text = spark_session.conf(spark, key, "false").lower()
    if text not in ("true", "false"):
        raise ConfigError([f"'{key}' is {text!r} in Spark's configuration: true or false is needed"])
    return text == "true"
