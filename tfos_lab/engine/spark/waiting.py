"""Waits for what Spark is asked, and for the end of a session, for as long as its server can answer.

Spark Connect's client asks a server that is lost again and again, for ten minutes.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, TypeVar

from tfos_lab.data.frames import is_connect
from tfos_lab.engine.spark.servers import ADVICE, lost_connect_server
from tfos_lab.errors import NoSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S = 1.0

T = TypeVar("T")

_asked: set[SparkSession] = set()


def while_server_answers(spark: SparkSession, ask: Callable[[], T], *, name: str) -> T:
    """Ask Spark something; with Spark Connect on a thread of its own, which is left alone if the server is lost.

    A server that is silent is waited for: it may go on.

    Parameters
    ----------
    spark : SparkSession
        Whose server it is.
    ask : callable
        What is done; its result is returned, or its error raised.
    name : str
        For the thread.

    Raises
    ------
    NoSession
        If the server has refused two connections, a second apart.
    """
    if not is_connect(spark):
        return ask()
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001 - whoever waits raises it
            answer.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    before = ""
    while True:
        if wait([answer], _POLL_S).done:
            return answer.result()
        lost = lost_connect_server(spark)
        if lost and before:
            ask_no_more(spark)
            raise NoSession(reason=lost, advice=ADVICE)
        before = lost


def ask_no_more(spark: SparkSession) -> None:
    """Have pyspark ask a session's Spark Connect server no more that is lost for good, as the session is with it.

    Else some of its threads ask for ten minutes, and Python waits for these when it ends.
    """
    for policy in spark.client.get_retry_policies():
        policy.max_retries = 0


def end_without_lost_server(spark: SparkSession) -> None:
    """See to it that Python ends at once where a session's Spark Connect server is lost; may be called again.

    pyspark ends its session on the server then, and tries for ten minutes.
    """
    if is_connect(spark):
        if not _asked:
            atexit.register(_close_lost)
        _asked.add(spark)


def _close_lost() -> None:
    for spark in _asked:
        if lost_connect_server(spark):
            with contextlib.suppress(Exception):  # the process ends
                spark.client.close()
