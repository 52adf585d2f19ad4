"""`MirroredStrategyRunner`: a training function on several Spark tasks, with one copy of the model on each.

Constructor, `MirroredStrategyRunner.run` and errors mean what they mean in spark-tensorflow-distributor. Nodes import
this module with the programs that use it, without what only the driver has. What runs there is
`tfos_lab.node.train_fn`.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfos_lab.core.config import ClusterOptions
from tfos_lab.core.options import is_int
from tfos_lab.data.frames import is_connect
from tfos_lab.errors import ConfigError
from tfos_lab.node.train_fn import TrainFnSettings, checked_gpus, run_train_fn

if TYPE_CHECKING:
    from pyspark import SparkContext

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
        from pyspark.sql import SparkSession

        from tfos_lab.launchers.spark.session import active_session

        logger.info("Doing %s training...", "GPU" if use_gpu else "CPU")
        self._num_slots = num_slots
        self._local_mode = bool(local_mode)
        self._use_gpu = bool(use_gpu)
        self._gpu_resource_name = gpu_resource_name
        self._use_custom_strategy = bool(use_custom_strategy)
        self._spark = active_session() or SparkSession.builder.getOrCreate()
        self._num_tasks = 1 if local_mode else self.get_num_tasks()
        if local_mode:
            logger.warning("The function will run on the driver's machine, and share it with whatever else runs there.")
        else:
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
        from tfos_lab.launchers.spark.session import is_local
        from tfos_lab.notebook.start import run

        spans_hosts = not self._local_mode and not is_local(self._spark)
        # All nodes are called workers.
        options: ClusterOptions = {"master_node": None, "name": "MirroredStrategy", "cluster_size": self._num_tasks}
        if self._local_mode:
            options["local"] = "processes"
            options["env"] = {"CUDA_VISIBLE_DEVICES": ",".join(self._gpus_of_driver())}
        else:
            self._check_encryption()
            if not self._use_gpu:
                options["env"] = {"CUDA_VISIBLE_DEVICES": ""}
            elif not spans_hosts:
                options["gpus"] = self._gpus_per_task()
        settings = TrainFnSettings(
            num_slots=self._num_slots,
            num_tasks=self._num_tasks,
            gpu_resource=self._gpu_resource_name if spans_hosts and self._use_gpu else "",
            makes_strategy=not self._use_custom_strategy,
            sets_tf_config=not self._local_mode,
        )
        function = functools.partial(run_train_fn, train_fn, settings)
        with run(function, kwargs, spark=self._spark, show=False, **options) as cluster:
            logger.info("Training in progress; what the workers print is in %s", cluster.run_dir)
            value = cluster.wait()["worker:0"]
        logger.info("Training with %s slots is complete!", self._num_slots)
        return value

    def _setting(self, key: str, default: str = "") -> str:
        from tfos_lab.launchers.spark.session import conf

        return conf(self._spark, key, default)

    def _gpus_per_task(self) -> int:
        key = f"spark.task.resource.{self._gpu_resource_name}.amount"
        amount = self._setting(key)
        if not amount:
            problem = (
                f"use_gpu=True, but Spark does not assign GPUs to tasks: '{key}' was not found in its configuration. "
                "Set it and the other settings of GPU-aware scheduling, give another gpu_resource_name, or train "
                "without GPUs with use_gpu=False"
            )
            raise ConfigError([problem])
        if not amount.isdecimal() or int(amount) < 1:
            raise ConfigError([f"'{key}' is {amount} in Spark's configuration: a whole number from 1 on is needed"])
        return int(amount)

    def _gpus_of_driver(self) -> list[str]:
        """Return the GPUs to use in local mode."""
        name, slots = self._gpu_resource_name, self._num_slots
        if not self._use_gpu:
            if slots > 1:
                raise ConfigError([f"num_slots={slots}: local mode without GPUs runs on one machine; use num_slots=1"])
            return []
        resources = {} if is_connect(self._spark) else self._spark.sparkContext.resources
        if name not in resources:
            problem = (
                f"use_gpu=True, but Spark has assigned no resource '{name}' to the driver: set "
                f"spark.driver.resource.{name}.amount and .discoveryScript, give another gpu_resource_name, or train "
                "without GPUs with use_gpu=False"
            )
            raise ConfigError([problem])
        gpus = checked_gpus(name, list(resources[name].addresses))
        if slots > len(gpus):
            raise ConfigError([f"num_slots={slots}: local mode needs as many GPUs, and the driver has {len(gpus)}"])
        return gpus[:slots]

    def _check_encryption(self) -> None:
        """Raise if the user expects encrypted connections: those between TensorFlow's workers are not."""
        if not self._is_set("spark.ssl.enabled"):
            return
        told = (
            "spark.ssl.enabled is set, but TensorFlow's workers send gradients and variables to one another unencrypted"
        )
        if not self._is_set(_IGNORE_SSL):
            raise ConfigError([f"{told}. Set '{_IGNORE_SSL}' to 'true' in Spark's configuration to train nevertheless"])
        logger.warning("%s, as '%s' allows", told, _IGNORE_SSL)

    def _is_set(self, key: str) -> bool:
        text = self._setting(key, "false").lower()
        if text not in ("true", "false"):
            raise ConfigError([f"'{key}' is {text!r} in Spark's configuration: true or false is needed"])
        return text == "true"
