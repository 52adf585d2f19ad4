"""Whether Spark's own servers are there: the master of a standalone cluster, and the server of Spark Connect.

And whether YARN has ended the application, which is as if all of them were lost.

Without the master, nodes that run go on, and nothing else starts. The Connect server is its application's driver: with
it, all executors end, and nodes on them. A server counts as lost where its port refuses connections; one that is
stopped, or cannot be reached, may go on.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from typing import TYPE_CHECKING, Any

from tfos_lab.data.frames import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STANDALONE = "spark://"
_CONNECT = "sc://"
_YARN = "yarn"
_HOST_AND_PORT = re.compile(r"(\[[^\]]+\]|[^,:/]+):(\d+)")
_CONNECT_TIMEOUT_S = 1.0
# How long YARN is asked for the end of an application that Spark has given up, and of one that it has not.
_YARN_S = 3.0
_SOON_S = 0.5
# With one of these, gRPC may reach a server that cannot be reached from here.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")

#: What to do about a Connect server that is lost: its session does not come back with it.
ADVICE = "start it again, and make another session with SparkSession.builder.remote(...).create()"


def lost_server(spark: SparkSession) -> str:
    """Return a clause if a session's standalone master or Connect server refuses connections, or YARN has ended it.

    It says what follows, and is "" if all is well.
    """
    url = url_of(spark)
    if url == _YARN:
        return _why_yarn_ended(spark)
    if url.startswith(_CONNECT):
        lost = lost_connect_server(spark)
        return f"{lost}: its nodes end with it; {ADVICE}" if lost else ""
    reason = _why_refused(url) if url.startswith(_STANDALONE) else ""
    if not reason:
        return ""
    return (
        f"Spark's master at {url} does not answer ({reason}): what runs goes on, but Spark starts no executor "
        "until the master is back"
    )


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
    url = url_of(spark) if is_connect(spark) else ""
    reason = "" if any(map(os.environ.get, _PROXIES)) else _why_refused(url)
    return f"the Spark Connect server at {url} does not answer ({reason})" if reason else ""


def url_of(spark: SparkSession) -> str:
    """Return the session's master, or its Connect server, which alone has to reach the master; "" if unknown."""
    with contextlib.suppress(Exception):  # a session that has ended may not tell; others are made in ways of their own
        if not is_connect(spark):
            return spark.sparkContext.master or ""
        channel = spark._client._builder  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public way to ask
        return f"{_CONNECT}{channel.endpoint}"
    return ""


def _why_refused(url: str) -> str:
    """Return why none of the servers of a URL takes connections, as the first of them; "" if one does, or may do so."""
    reasons = []
    for host, port in _HOST_AND_PORT.findall(url.partition("://")[2]):
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S).close()
        except TimeoutError:
            return ""
        except OSError as error:
            reasons.append(error.strerror or str(error))
        else:
            return ""
    return reasons[0] if reasons else ""
