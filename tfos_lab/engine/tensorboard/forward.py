"""Passes a request on to a unix socket, with nothing of the user's in it, and brings the answer back."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.netutil import Resolver
from tornado.simple_httpclient import SimpleAsyncHTTPClient

# The first page comes when TensorBoard has looked through the event files.
_TIMEOUT_S = 120.0
_MOST_BYTES = 256 << 20

# What is about the page that is asked for; who asks for it, and from where, is not for the node's eyes.
_PASSED_ON = (
    "Accept",
    "Accept-Encoding",
    "Content-Type",
    "If-Modified-Since",
    "If-None-Match",
    "Range",
    "X-Tensorboard-Feature-Flags",
    "X-Xsrf-Protected",
)


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: HTTPHeaders
    body: bytes


class _UnixResolver(Resolver):
    """Finds every host at one unix socket."""

    def initialize(self, path: str) -> None:
        self._path = path

    async def resolve(self, host: str, port: int, family: Any = socket.AF_UNSPEC) -> list[tuple[int, Any]]:  # noqa: ARG002
        """Return the socket."""
        return [(socket.AF_UNIX, self._path)]


async def forward(asked: HTTPServerRequest, socket_path: str, path: str) -> Answer:
    """Ask for ``path`` at the socket as ``asked`` does.

    Raises
    ------
    OSError
        If nobody is there, or whoever is there does not answer in time.
    """
    headers = HTTPHeaders({name: asked.headers[name] for name in _PASSED_ON if name in asked.headers})
    if path.endswith(("/", ".html")):
        headers["Accept-Encoding"] = "identity"  # so that the page can be added to
    query = f"?{asked.query}" if asked.query else ""
    request = HTTPRequest(
        f"http://tensorboard{path}{query}",
        method=asked.method or "GET",
        headers=headers,
        body=asked.body if asked.method == "POST" else None,
        decompress_response=False,
        follow_redirects=False,
        connect_timeout=_TIMEOUT_S,
        request_timeout=_TIMEOUT_S,
    )
    return await _send(request, socket_path)


async def fetch(socket_path: str, path: str) -> Answer:
    """Ask for ``path`` at the socket on our own account; raises OSError as `forward` does."""
    return await _send(HTTPRequest(f"http://tensorboard{path}", request_timeout=_TIMEOUT_S), socket_path)


async def _send(request: HTTPRequest, socket_path: str) -> Answer:
    resolver = _UnixResolver(path=socket_path)
    client = SimpleAsyncHTTPClient(
        force_instance=True, resolver=resolver, max_buffer_size=_MOST_BYTES, max_body_size=_MOST_BYTES
    )
    try:
        response = await client.fetch(request, raise_error=False)
    except HTTPClientError as error:
        raise ConnectionError(str(error)) from error
    finally:
        client.close()
    return Answer(response.code, response.headers, response.body)
