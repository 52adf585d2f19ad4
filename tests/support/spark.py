"""SparkSessions for tests, in every mode that launchers support, one after another in one process.

A process can have one classic SparkContext, and none beside a Spark Connect session. When the gateway JVM ends with the
session, and Spark's variables are removed from the environment, the next session may have another mode. `spark_session`
does that for one session. `SparkSessions` keeps the last one while tests ask for the same mode, since a session and its
first job take seconds; `conftest.py` sorts the tests by mode.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from tests.support.spark_home import QUICK_JVM, spark_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tests run in this order.
SPARK_MODES = ("local", "standalone", "connect", "yarn")

# A JVM without its driver ends within a second; if it takes longer, it hangs.
_JVM_TIMEOUT_S = 30


@dataclass(frozen=True)
class Place:
    """Where sessions of a mode run: ``master`` as for `spark_session`, and what they are configured with there."""

    master: str
    conf: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def _environ_of(environment: Mapping[str, str]) -> Iterator[None]:
    """Make this the environment; afterwards, what differed is as before, and what others have changed stays so.

    Sessions outlive tests, and what these have set.
    """
    names = {*environment, *os.environ}
    before = {name: os.environ.get(name) for name in names if environment.get(name) != os.environ.get(name)}
    _set_environ({name: environment.get(name) for name in before})
    try:
        yield
    finally:
        _set_environ(before)


def _set_environ(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def spark_session(
    master: str,
    folder: Path,
    *,
    connect: bool = False,
    conf: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    python: Path | None = None,
) -> Iterator[SparkSession]:
    """Yield a new session with its own JVM; both end with the block.

    ``master`` is as for ``SparkSession.builder.master``, or ``.remote`` with ``connect`` or an ``sc://`` address. With
    ``connect``, this process' JVM has a server of Spark Connect. ``conf`` overrides ours, ``env`` are variables of this
    process while the block lasts, and ``python`` is the executors' interpreter (see `bare_python`).
    """
    with ExitStack() as stack:
        environment = spark_environment(folder / "local", python=python) | dict(env or {})
        stack.enter_context(_environ_of(environment))
        stack.enter_context(_sigint_kept())
        stack.callback(_end_jvm)
        if connect:
            stack.enter_context(_connect_asks_for_the_port())
        # A server of its own process is configured where it is started.
        ours = {} if master.startswith("sc://") else _configuration(folder)
        session = _build(master, ours | dict(conf or {}), connect=connect or master.startswith("sc://"))
        stack.callback(_stop, session)
        yield session


class SparkSessions:
    """Keeps one session alive: the one that was last asked for.

    ``place_of`` returns the place of a mode of `SPARK_MODES`, and starts what has to run there when first called.
    """

    def __init__(self, folder: Path, place_of: Callable[[str], Place]) -> None:
        self._folder = folder
        self._place_of = place_of
        self._mode: str | None = None
        self._session: SparkSession | None = None
        self._open = ExitStack()

    def get(self, mode: str) -> SparkSession:
        """Return a session in one of `SPARK_MODES`: the present one if it fits and is alive, else a new one."""
        if self._session is None or self._mode != mode or not is_alive(self._session):
            self.close()
            place = self._place_of(mode)
            session = spark_session(place.master, self._folder, conf=place.conf, env=place.env)
            self._session, self._mode = self._open.enter_context(session), mode
        return self._session

    def close(self) -> None:
        """End the present session, if any, so that a test can make its own."""
        self._session = self._mode = None
        self._open.close()


def wait_for_slots(session: SparkSession, count: int) -> None:
    """Wait until ``count`` task slots are free: tasks of a barrier stage start together, once there is one for each.

    What held them may not have ended yet, such as a task that was cancelled, and Spark hears of it later still.
    """
    assert (
        session.sparkContext.parallelize(range(count), count).barrier().mapPartitions(lambda rows: rows).count()
        == count
    )


def is_alive(session: SparkSession) -> bool:
    """Whether a session can be used: it is not stopped, and its JVM is alive."""
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
        # The Connect client sets options again that can be set at the server's start only.
        warnings.filterwarnings("ignore", message="Failed to set spark")
        return builder.getOrCreate()


@contextlib.contextmanager
def _connect_asks_for_the_port() -> Iterator[None]:
    """Let the client of ``remote("local[n]")`` find its server on any port; it would assume 15002."""
    from pyspark.sql.connect.client import DefaultChannelBuilder

    def port() -> int:
        from pyspark import SparkContext

        service = getattr(SparkContext._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
        return int(getattr(service, "MODULE$").localPort())

    with mock.patch.object(DefaultChannelBuilder, "default_port", staticmethod(port)):
        yield


@contextlib.contextmanager
def _sigint_kept() -> Iterator[None]:
    """Restore the handler of SIGINT: a new SparkContext installs one that cancels all jobs."""
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
    """End the gateway's JVM, which pyspark keeps until the process exits, and reset pyspark's references to it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    if gateway is None:
        return
    gateway.shutdown()
    # It ends when its stdin closes.
    gateway.proc.stdin.close()
    gateway.proc.wait(_JVM_TIMEOUT_S)
