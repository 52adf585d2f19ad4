"""SparkSessions for tests, of every mode that the launchers meet, one after another in one process.

pyspark allows one classic SparkContext in a process, and none beside a Spark Connect session made by
``remote("local[4]")``. But when the gateway JVM goes with the session, and Spark's variables leave the environment, the
next session may be of any mode. `spark_session` does that for one; `SparkSessions` keeps the last one for as long as
tests ask for the same mode, since a session and its first job take seconds. `conftest.py` sorts tests by mode.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from tests.support.spark_home import QUICK_JVM, spark_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In the order that tests run in.
SPARK_MODES = ("local", "standalone", "local-cluster", "connect")

_MASTERS = {"local": "local[2]", "local-cluster": "local-cluster[2,1,1500]", "connect": "local[4]"}

# A JVM that has lost its driver ends within a second; more means that it hangs.
_JVM_TIMEOUT_S = 30


@contextlib.contextmanager
def spark_session(
    master: str,
    folder: Path,
    *,
    connect: bool = False,
    conf: Mapping[str, str] | None = None,
    python: Path | None = None,
) -> Iterator[SparkSession]:
    """Give a fresh session in a JVM of its own; both end with the block.

    Parameters
    ----------
    master : str
        As for ``SparkSession.builder.master``, or ``.remote`` with `connect`.
    folder : path
        For the warehouse and scratch files.
    connect : bool
        Make a Spark Connect session, its server listening on a free port.
    conf : mapping of str to str, optional
        More configuration; it wins over ours.
    python : path, optional
        The executors' interpreter (see `bare_python`); None means this one.
    """
    with ExitStack() as stack:
        environment = spark_environment(folder / "local", python=python)
        stack.enter_context(mock.patch.dict(os.environ, environment, clear=True))
        stack.enter_context(_sigint_kept())
        stack.callback(_end_jvm)
        if connect:
            stack.enter_context(_connect_asks_for_the_port())
        session = _build(master, _configuration(folder) | dict(conf or {}), connect=connect)
        stack.callback(_stop, session)
        yield session


class SparkSessions:
    """Keeps one session alive, of the mode last asked for.

    Parameters
    ----------
    folder : path
        For all files of all sessions.
    standalone_url : callable
        Returns the master URL of a standalone cluster, and starts one when first called.
    """

    def __init__(self, folder: Path, standalone_url: Callable[[], str]) -> None:
        self._folder = folder
        self._standalone_url = standalone_url
        self._import_environ: str | None = None
        self._session: SparkSession | None = None
        self._open = ExitStack()

    def get(self, import_environ: str) -> SparkSession:
        """Return a usable session of one of `SPARK_MODES`: the one that is there, or a new one in its place."""
        if self._session is None or self._import_environ != import_environ or not is_alive(self._session):
            self.close()
            self._session = self._open.enter_context(
                spark_session(self.master(import_environ), self._folder, connect=import_environ == "connect")
            )
            self._import_environ = import_environ
        return self._session

    def master(self, import_environ: str) -> str:
        """Return the master URL of a mode."""
        return self._standalone_url() if import_environ == "standalone" else _MASTERS[import_environ]

    def close(self) -> None:
        """End the session that is there, if any, so that a test can make one of its own."""
        self._session = self._import_environ = None
        self._open.close()


def is_alive(session: SparkSession) -> bool:
    """Say whether a session still answers: not stopped, and its JVM is there."""
    from py4j.protocol import Py4JError

    if hasattr(type(session), "is_stopped"):
        return not session.is_stopped
    try:
        return session._jsc is not None and not session._jsc.sc().isStopped()
    except (Py4JError, OSError):
        return False


def _configuration(folder: Path) -> dict[str, str]:
    return {
        "spark.app.name": "tfos_lab tests",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.executor.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _build(master: str, conf: Mapping[str, str], *, connect: bool) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(master) if connect else SparkSession.builder.master(master)
    for name, value in conf.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # The Connect client tries to set again what only the server's start could set.
        warnings.filterwarnings("ignore", message="Failed to set spark")
        return builder.getOrCreate()


@contextlib.contextmanager
def _connect_asks_for_the_port() -> Iterator[None]:
    """Let the client of ``remote("local[n]")`` find its server on any port; it takes 15002 for granted otherwise."""
    from pyspark.sql.connect.client import DefaultChannelBuilder

    def port() -> int:
        from pyspark import SparkContext

        service = getattr(SparkContext._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
        return int(getattr(service, "MODULE$").localPort())

    with mock.patch.object(DefaultChannelBuilder, "default_port", staticmethod(port)):
        yield


@contextlib.contextmanager
def _sigint_kept() -> Iterator[None]:
    """Put back the handler of SIGINT, which a new SparkContext replaces by one that cancels all jobs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _stop(session: SparkSession) -> None:
    """Stop a session; a test may have killed its JVM."""
    from py4j.protocol import Py4JError

    with contextlib.suppress(Py4JError, OSError):
        session.stop()


def _end_jvm() -> None:
    """End the gateway's JVM, which pyspark keeps until the process exits, and let pyspark forget it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    if gateway is None:
        return
    gateway.shutdown()
    # It leaves when its stdin closes.
    gateway.proc.stdin.close()
    gateway.proc.wait(_JVM_TIMEOUT_S)
