"""Whether Spark's own servers answer: the master of a standalone cluster, and the server of Spark Connect.

And whether YARN has ended the application, which is as if all of them were lost.

Without the master, nodes that run go on, and nothing else starts. The Connect server is its application's driver: with
it, all executors end, and nodes on them; while it is stopped or cannot be reached, they go on.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import ssl
import struct
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfos_lab.data.frames import is_connect
from tfos_lab.engine.spark.probe import SILENT, TIMED_OUT, KeptConnection, Place, has_answered, why_lost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STANDALONE = "spark://"
_CONNECT = "sc://"
_YARN = "yarn"
_TLS = "/;use_ssl=true"
_HOST_AND_PORT = re.compile(r"(\[[^\]]+\]|[^,:/]+):(\d+)")
_POLL_S = 1.0
# How long YARN is asked for the end of an application that Spark has given up, and of one that it has not.
_YARN_S = 3.0
_SOON_S = 0.5
# Asks for a file that nobody has, which is answered without a word in the master's log: the length of the frame, the
# type StreamRequest (6), and the length and text of a name, as Spark's TransportRequestHandler reads them.
_NAME = b"/files/none"
_FILE = struct.pack("!QBI", 8 + 1 + 4 + len(_NAME), 6, len(_NAME)) + _NAME
# What a client of HTTP/2 says first (RFC 9113, 3.4): its preface, and no settings. Servers answer with theirs.
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + struct.pack("!HBBBI", 0, 0, 4, 0, 0)
# With one of these, gRPC may reach a server that cannot be reached from here.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")

#: What to do about a Connect server that is lost: its session does not come back with it.
ADVICE = "start it again, and make another session with SparkSession.builder.remote(...).create()"


def lost_server(spark: SparkSession) -> str:
    """Return a clause if a session's standalone master or Connect server does not answer, or YARN has ended it.

    It says what follows, and is "" if all is well. Takes a moment, or some seconds where the server is silent.
    """
    url = url_of(spark)
    return _why_yarn_ended(spark) if url == _YARN else lost_server_at(url)


def _why_yarn_ended(spark: SparkSession) -> str:
    """Return what YARN says of an application that it has ended; "" of one that runs."""
    context: Any = spark.sparkContext
    with contextlib.suppress(Exception):  # the JVM or the ResourceManager may be gone, too
        yarn, java_context = context._jvm.org.apache.hadoop.yarn, context._jsc  # noqa: SLF001 - nothing public has them
        settings = yarn.conf.YarnConfiguration(java_context.hadoopConfiguration())
        settings.setLong("yarn.resourcemanager.connect.max-wait.ms", int(1000 * _YARN_S))
        client = yarn.client.api.YarnClient.createYarnClient()
        client.init(settings)
        client.start()
        try:
            number = yarn.api.records.ApplicationId.fromString(java_context.sc().applicationId())
            began_s = time.monotonic()
            # Its executors go first.
            while (waited_s := time.monotonic() - began_s) < (_YARN_S if java_context.sc().isStopped() else _SOON_S):
                report = client.getApplicationReport(number)
                if report.getFinalApplicationStatus().toString() != "UNDEFINED":
                    return "YARN has ended it: " + " ".join(str(report.getDiagnostics()).split())
                time.sleep(min(_SOON_S, waited_s + 0.05))
        finally:
            client.stop()
    return ""


def lost_connect_server(spark: SparkSession) -> str:
    """Return `lost_server` without what follows, for Connect servers only."""
    return _lost_connect_server_at(url_of(spark))[0] if is_connect(spark) else ""


def url_of(spark: SparkSession) -> str:
    """Return the session's master, or its Connect server, which alone has to reach the master; "" if unknown."""
    with contextlib.suppress(Exception):  # a session that has ended may not tell; others are made in ways of their own
        if not is_connect(spark):
            return spark.sparkContext.master or ""
        channel = spark._client._builder  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public way to ask
        is_local = channel.host == "localhost" and not channel.use_ssl  # where a token needs no TLS
        return f"{_CONNECT}{channel.endpoint}{_TLS if channel.secure and not is_local else ''}"
    return ""


def lost_server_at(url: str) -> str:
    """Return what `lost_server` does, for the URL of a Connect server, a master, or several that stand by."""
    if url.startswith(_CONNECT):
        return ": ".join(filter(None, _lost_connect_server_at(url)))
    reason = why_lost(_masters_of(url), lambda _host: _FILE)
    if not reason:
        return ""
    return (
        f"Spark's master at {url} does not answer ({reason}): what runs goes on, but Spark starts no executor "
        "until the master is back"
    )


def _masters_of(url: str) -> list[Place]:
    places = _HOST_AND_PORT.findall(url.removeprefix(_STANDALONE)) if url.startswith(_STANDALONE) else []
    return [(host.strip("[]"), int(port)) for host, port in places]


def _lost_connect_server_at(url: str) -> tuple[str, str]:
    """Return a clause and what follows from it; both are "" if the server answers, or may do so to others."""
    found = _HOST_AND_PORT.match(url.removeprefix(_CONNECT))
    if found is None:
        return "", ""
    place = found[1].strip("[]"), int(found[2])
    reason = why_lost([place], _client_hello if url.endswith(_TLS) else lambda _host: _HTTP2)
    if not reason or not (has_answered(place) or not any(map(os.environ.get, _PROXIES))):
        return "", ""
    follows = f"where it has ended, its nodes end with it; {ADVICE}"
    if is_silence(reason):
        follows = "nodes that run go on, but Spark does nothing else until it is back; if it ends, they end with it"
    return f"the Spark Connect server at {url.removesuffix(_TLS)} does not answer ({reason})", follows


@functools.cache
def _client_hello(host: str) -> bytes:
    """Return what a client of TLS says first."""
    sent = ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=host).do_handshake()
    return sent.read()


def is_silence(lost: str) -> bool:
    """Whether two connections have told so; one that is refused may be so for other reasons."""
    return SILENT in lost or TIMED_OUT in lost


class ServerWatch(threading.Thread):
    """Adds a note when the master or Connect server is lost, and another when it is back (``tfos-servers-<cluster>``).

    Parameters
    ----------
    cluster_id : str
        For the thread's name.
    spark : SparkSession
        Whose master is watched, if it is that of a standalone cluster, or whose Spark Connect server.
    note : callable
        Takes a sentence.
    """

    def __init__(self, cluster_id: str, spark: SparkSession, note: Callable[[str], None]) -> None:
        super().__init__(name=f"tfos-servers-{cluster_id}", daemon=True)
        self._url = url_of(spark)
        self._note = note
        self._lost = ""
        self._closed = threading.Event()

    @property
    def has_lost_driver(self) -> bool:
        """Whether Spark's driver, which the Connect server is, did not answer when it was last asked."""
        return bool(self._lost) and self._url.startswith(_CONNECT)

    def close(self) -> None:
        """End the thread, without waiting for it."""
        self._closed.set()

    def run(self) -> None:
        """Watch until `close` is called."""
        if not self._url.startswith((_STANDALONE, _CONNECT)):
            return
        with contextlib.closing(KeptConnection(_masters_of(self._url), _FILE)) as master:
            self._watch(master)

    def _watch(self, master: KeptConnection) -> None:
        told = ""
        while not self._closed.wait(_POLL_S):
            before, self._lost = self._lost, "" if master.answers() else lost_server_at(self._url)
            if self._lost and (before or is_silence(self._lost)) and not told:
                told = self._lost[0].upper() + self._lost[1:]
                self._note(told)
            elif told and not self._lost:
                self._note(f"{told.partition(' does not answer')[0]} answers again")
                told = ""
