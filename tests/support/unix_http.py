"""Answers of HTTP as they are, also over a unix socket, and event files without TensorFlow."""

from __future__ import annotations

import gzip
import http.client
import socket
import time
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from typing import Any

from tests.support.eventually import PATIENCE_S, eventually


class _Still(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def ask(url: str, *, method: str = "GET", headers: dict[str, str] | None = None) -> tuple[int, Message, bytes]:
    """Return status, headers and body; redirections are not followed."""
    request = urllib.request.Request(url, method=method, headers=headers or {}, data=b"" if method == "POST" else None)
    try:
        with urllib.request.build_opener(_Still).open(request, timeout=120) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def fetch(path: str | Path, url: str) -> tuple[int, bytes]:
    """Return status and body of one GET."""
    connection = http.client.HTTPConnection("localhost", timeout=PATIENCE_S)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(PATIENCE_S)
    connection.sock.connect(str(path))
    try:
        connection.request("GET", url)
        response = connection.getresponse()
        body = response.read()
        return response.status, gzip.decompress(body) if response.getheader("Content-Encoding") == "gzip" else body
    finally:
        connection.close()


def fetch_until(path: str | Path, url: str, wanted: bytes, *, status: int = 200) -> bytes:
    """Ask again until the answer has that status and holds ``wanted``; return it.

    A server that dies or is replaced may close a connection before it answers.
    """

    def answered() -> bytes:
        try:
            answer = fetch(path, url)
        except (ConnectionError, http.client.HTTPException) as error:
            raise AssertionError(error) from error
        assert answer[0] == status, answer
        assert wanted in answer[1], answer
        return answer[1]

    return eventually(answered)


def write_events(folder: str | Path, **scalars: list[float]) -> None:
    """Write an event file with these scalars; without TensorFlow, whose import is not what is tested."""
    import sys
    import types

    before = set(sys.modules)
    sys.modules.setdefault("tensorboard.compat.notf", types.ModuleType("tensorboard.compat.notf"))
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer: Any = EventFileWriter(str(folder))
    for name, values in scalars.items():
        for step, value in enumerate(values):
            summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
            writer.add_event(Event(step=step, wall_time=time.time(), summary=summary))
    writer.close()
    # A TensorBoard that is imported without TensorFlow is no use to Keras, if this is its process, too.
    for name in set(sys.modules) - before:
        if name.startswith("tensorboard"):
            del sys.modules[name]
