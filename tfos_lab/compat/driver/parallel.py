"""Runs the instances that `TFParallel.run` asks for, as independent runs of ours."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfos_lab.compat.driver.start import default_fs_of, gpus_wanted, session_of
from tfos_lab.compat.instance_function import InstanceSettings, run_instance
from tfos_lab.core.options import is_int
from tfos_lab.errors import ConfigError
from tfos_lab.notebook.parallel import run_all

if TYPE_CHECKING:
    from pyspark import SparkContext


def run_instances(
    sc: SparkContext, map_fn: Callable[[Any, Any], object], tf_args: Any, num_executors: int, *, use_barrier: bool
) -> None:
    """Run the instances to their ends; see `TFParallel.run`."""
    if not is_int(num_executors) or num_executors < 1:
        raise ConfigError([f"num_executors={num_executors!r}: a whole number of instances, 1 or more, is needed"])
    session = session_of(sc)
    gpus = gpus_wanted(tf_args)
    settings = InstanceSettings(
        num_workers=num_executors,
        default_fs=default_fs_of(session),
        working_dir=os.getcwd(),  # noqa: PTH109 - a string
        num_gpus=1 if gpus is None else gpus,
    )
    instance = functools.partial(run_instance, map_fn, settings, tf_args)
    run_all(instance, range(num_executors), at_once=bool(use_barrier), spark=session, name="TFParallel")
