"""Passes a request on to a unix socket, without anything about the user, and returns the response."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.netutil import Resolver
from tornado.simple_httpclient import SimpleAsyncHTTPClient

# TensorBoard sends its first page when it has read the event files.
_TIMEOUT_S = 120.0
_MAX_BYTES = 256 << 20

# Headers about the page. Those about the user, such as cookies, are not sent to a node.
_FORWARDED_HEADERS = (
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
class Response:
    """An HTTP response."""

    status: int
    headers: HTTPHeaders
    body: bytes


class _UnixResolver(Resolver):
    """Resolves every host to one unix socket."""

    def initialize(self, path: str) -> None:
        self._path = path

    async def resolve(self, host: str, port: int, family: Any = socket.AF_UNSPEC) -> list[tuple[int, Any]]:  # noqa: ARG002
        """Return the socket's address."""
        return [(socket.AF_UNIX, self._path)]


async def forward(request: HTTPServerRequest, socket_path: str, path: str) -> Response:
    """Send the request to ``path`` at the socket.

    Raises
    ------
    OSError
        If nobody listens there, or there is no response in time.
    """
    headers = HTTPHeaders({name: request.headers[name] for name in _FORWARDED_HEADERS if name in request.headers})
    if path.endswith(("/", ".html")):
        headers["Accept-Encoding"] = "identity"  # so that a script can be inserted
    query = f"?{request.query}" if request.query else ""
    forwarded = HTTPRequest(
        f"http://tensorboard{path}{query}",
        method=request.method or "GET",
        headers=headers,
        body=request.body if request.method == "POST" else None,
        decompress_response=False,
        follow_redirects=False,
        connect_timeout=_TIMEOUT_S,
        request_timeout=_TIMEOUT_S,
    )
    return await _send(forwarded, socket_path)


async def fetch(socket_path: str, path: str) -> Response:
    """Request ``path`` at the socket for our own use; raises OSError as `forward` does."""
    return await _send(HTTPRequest(f"http://tensorboard{path}", request_timeout=_TIMEOUT_S), socket_path)


async def _send(request: HTTPRequest, socket_path: str) -> Response:
    resolver = _UnixResolver(path=socket_path)
    client = SimpleAsyncHTTPClient(
        force_instance=True, resolver=resolver, max_buffer_size=_MAX_BYTES, max_body_size=_MAX_BYTES
    )
    try:
        response = await client.fetch(request, raise_error=False)
    except HTTPClientError as error:
        raise ConnectionError(str(error)) from error
    finally:
        client.close()
    return Response(response.code, response.headers, response.body)
