"""Two Spark clusters of the same shape: one for tfos_lab, one for the peers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

from benchmarks.peers.environment import spark_home
from benchmarks.peers.peer import Peer
from tests.support.spark import spark_session
from tests.support.spark_home import spark_environment
from tests.support.standalone import standalone_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_PAUSE_S = 1.5

# TensorFlowOnSpark needs executors of one slot. JVMs compile as they do for users, unlike in the tests.
_CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.executor.memory": "1g",
    "spark.log.level": "ERROR",
    # The first job waits for all executors.
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@dataclass(frozen=True)
class Rig:
    """Our session, the peers' process, and a folder that both see."""

    spark: SparkSession
    peer: Peer
    folder: Path


@contextmanager
def side_by_side(python: Path, executors: int) -> Iterator[Rig]:
    """Start both sides, each with ``executors`` executors of one core."""
    home = spark_home(python)
    conf = _CONF | {"spark.cores.max": str(executors)}
    shape = {"workers": 1, "cores": executors, "memory": f"{executors}g"}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        theirs = stack.enter_context(standalone_cluster(folder / "theirs", home=home, **shape))
        ours = stack.enter_context(standalone_cluster(folder / "ours", **shape))
        env = spark_environment(folder / "theirs" / "driver", python=python, home=home)
        env |= {"TFOS_SERVER_HOST": "127.0.0.1", "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2")}
        env.pop("PYTHONPATH", None)
        log = folder / "peer.log"
        peer = stack.enter_context(Peer(python, theirs.master_url, conf, env=env, log=log))
        spark = stack.enter_context(spark_session(ours.master_url, folder / "session", conf=conf))
        spark.range(1).count()
        yield Rig(spark, peer, folder)


def take_turns(rounds: int, ours: Callable[[], T], theirs: Callable[[], T]) -> tuple[list[T], list[T]]:
    """Return what both sides measure, in turns, so that changes of the machine's speed affect both.

    Each begins on an idle machine: what the other side still does after its answer, such as collecting garbage in
    Python workers and compiling Java, would take a part of the cores.
    """
    measured: tuple[list[T], list[T]] = [], []
    for _ in range(rounds):
        for side, results in zip((ours, theirs), measured, strict=True):
            time.sleep(_PAUSE_S)
            results.append(side())
    return measured
