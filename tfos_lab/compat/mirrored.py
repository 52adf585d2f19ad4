"""`MirroredStrategyRunner`: a training function on several Spark tasks, with one copy of the model on each.

Constructor, `MirroredStrategyRunner.run` and errors mean what they mean in spark-tensorflow-distributor. Nodes import
this module with the programs that use it; the work is done by `tfos_lab.compat.training`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfos_lab.core.options import is_int
from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)


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
        from tfos_lab.compat.training import Training

        logger.info("Doing %s training...", "GPU" if use_gpu else "CPU")
        self._num_slots = num_slots
        self._training = Training(
            num_slots=num_slots,
            local_mode=bool(local_mode),
            use_gpu=bool(use_gpu),
            gpu_resource_name=gpu_resource_name,
            use_custom_strategy=bool(use_custom_strategy),
        )
        if local_mode:
            logger.warning("The function will run on the driver's machine, and share it with whatever else runs there.")
        else:
            logger.info("Will run with %s Spark tasks.", self._training.num_tasks)

    @property
    def sc(self) -> SparkContext:
        """The SparkContext."""
        return self._training.spark.sparkContext

    def get_num_tasks(self) -> int:
        """Return how many Spark tasks train.

        Raises
        ------
        ConfigError
            If GPUs are wanted, and Spark does not give any to its tasks.
        """
        return self._training.count_tasks()

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
        value = self._training.run(train_fn, kwargs)
        logger.info("Training with %s slots is complete!", self._num_slots)
        return value
