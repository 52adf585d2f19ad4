"""The master of a standalone cluster: without it, nodes that run go on, and nothing else starts."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tfos_lab.data.frames import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STANDALONE = "spark://"
_HOST_AND_PORT = re.compile(r"(\[[^\]]+\]|[^,:/]+):(\d+)")
_CONNECT_S = 1.0
_POLL_S = 1.5
# Asks for a file that nobody has, which is answered without a word in the master's log: the length of the frame, the
# type StreamRequest (6), and the length and text of a name, as Spark's TransportRequestHandler reads them.
_ANSWER_S = 3.0
_NAME = b"/files/none"
_QUESTION = struct.pack("!QBI", 8 + 1 + 4 + len(_NAME), 6, len(_NAME)) + _NAME
_SILENT = "it takes connections and says nothing, as a process that is stopped or hangs"
# Masters that have answered once: what has never answered may be no master, but what stands before it.
_answered: set[tuple[str, int]] = set()


def lost_master(spark: SparkSession) -> str:
    """Return a clause if the master of a session's standalone cluster does not answer; "" if it does, or is none."""
    return lost_master_at(_url_of(spark))


def _url_of(spark: SparkSession) -> str:
    """Return the session's master; "" for Spark Connect, whose server alone has to reach it."""
    with contextlib.suppress(Exception):  # a session that has ended may not tell
        return "" if is_connect(spark) else spark.sparkContext.master or ""
    return ""


def lost_master_at(url: str) -> str:
    """Return what `lost_master` does, for the URL of a master, or of several that stand by for one another."""
    places = _HOST_AND_PORT.findall(url.removeprefix(_STANDALONE)) if url.startswith(_STANDALONE) else []
    reasons = [_why_not(host.strip("[]"), int(port)) for host, port in places]
    if not reasons or not all(reasons):
        return ""
    return (
        f"Spark's master at {url} does not answer ({reasons[0]}): what runs goes on, but Spark starts no executor "
        "until the master is back"
    )


def _why_not(host: str, port: int) -> str:
    """Return why a master does not answer; the system takes connections for one that is stopped, too."""
    try:
        with socket.create_connection((host, port), _CONNECT_S) as connection:
            connection.settimeout(_ANSWER_S)
            connection.sendall(_QUESTION)
            try:
                connection.recv(1)
            except TimeoutError:
                return _SILENT if (host, port) in _answered else ""
            except OSError:
                pass  # it has closed the connection: it is there
    except OSError as error:
        return error.strerror or str(error)
    _answered.add((host, port))
    return ""


class MasterWatch(threading.Thread):
    """Adds a note when the master is lost, and another when it is back (``tfos-master-<cluster>``).

    Parameters
    ----------
    cluster_id : str
        For the thread's name.
    spark : SparkSession
        Whose master is watched, if it is that of a standalone cluster.
    note : callable
        Takes a sentence.
    """

    def __init__(self, cluster_id: str, spark: SparkSession, note: Callable[[str], None]) -> None:
        super().__init__(name=f"tfos-master-{cluster_id}", daemon=True)
        self._url = _url_of(spark)
        self._note = note
        self._closed = threading.Event()

    def close(self) -> None:
        """End the thread, without waiting for it."""
        self._closed.set()

    def run(self) -> None:
        """Watch until `close` is called."""
        if not self._url.startswith(_STANDALONE):
            return
        before, told = "", False
        while not self._closed.wait(_POLL_S):
            lost = lost_master_at(self._url)
            # One connection may fail for other reasons.
            if lost and before and not told:
                told = True
                self._note(lost)
            elif told and not lost:
                told = False
                self._note(f"Spark's master at {self._url} answers again")
            before = lost
