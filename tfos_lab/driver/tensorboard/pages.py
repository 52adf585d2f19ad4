"""Sends a run's TensorBoard pages to browsers: sandboxed, and never blank.

Used by the handlers of the Jupyter server, and by those of the kernel (`server`), which it asks.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.netutil import Resolver
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from tfos_lab.core.markup import h

if TYPE_CHECKING:
    from tornado import web


NO_DATA_YET = (
    "TensorBoard waits for the first event files. Keras' TensorBoard callback writes them, which is one of "
    "ctx.callbacks(), and so does tf.summary below ctx.event_dir."
)
NO_ANSWER = "TensorBoard does not answer. It may still be starting: try again in a moment."

_FIRST_PAGE = "/"
# TensorBoard's list of its dashboards, with whether each has something to show.
_LISTING = "/data/plugins_listing"
UNAVAILABLE = 503
_RETRY_S = 2

_POLICY = (
    "sandbox allow-scripts allow-downloads allow-modals; default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; "
    "frame-ancestors 'self'; form-action 'none'; object-src 'none'; base-uri 'none'"
)

# Headers that describe content; all others are dropped.
_CONTENT_HEADERS = (
    "Content-Type",
    "Content-Encoding",
    "Content-Disposition",
    "Cache-Control",
    "Expires",
    "ETag",
    "Last-Modified",
    "Vary",
)

SAFE_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Distinguishes our responses from those of a server without this extension.
    "X-Tfos-Lab": "1",
    # The origin of a sandboxed page. Access is controlled by the ticket or token in the address.
    "Access-Control-Allow-Origin": "null",
}

# TensorBoard draws in a worker if OffscreenCanvas exists, but a sandboxed page cannot start workers.
_SHIM = b"""<script>
(() => {
  const makeStorage = (entries) => {
    const kept = new Map(entries);
    return {
      getItem: (key) => kept.get(String(key)) ?? null,
      setItem: (key, value) => void kept.set(String(key), String(value)),
      removeItem: (key) => void kept.delete(String(key)),
      clear: () => kept.clear(),
      key: (index) => [...kept.keys()][index] ?? null,
      get length() { return kept.size; },
    };
  };
  // Frames are small: hide the settings pane at first; and reload charts automatically.
  const settings = { timeSeriesSettingsPaneOpened: false, autoReload: true, autoReloadPeriodInMs: 15000 };
  const local = makeStorage([["_tb_global_settings", JSON.stringify(settings)]]);
  Object.defineProperty(window, "localStorage", { value: local, configurable: true });
  Object.defineProperty(window, "sessionStorage", { value: makeStorage(), configurable: true });
  Object.defineProperty(document, "cookie", { get: () => "", set: () => {}, configurable: true });
  delete window.OffscreenCanvas;
})();
</script>"""

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


async def send_page(handler: web.RequestHandler, socket_path: str, path: str) -> None:
    """Pass the handler's request on to ``path`` of the TensorBoard at ``socket_path``, and send its response.

    The first page is withheld until there is something to show: opened earlier, TensorBoard would go on saying for a
    while that no dashboards are active. A TensorBoard that cannot list them yet reports that itself; it may be up a
    moment later, still with nothing to show.
    """
    try:
        if path == _FIRST_PAGE:
            listing = await fetch(socket_path, _LISTING)
            if listing.status == UNAVAILABLE:
                _send(handler, listing)
                return
            if _is_empty(listing):
                send_message(handler, UNAVAILABLE, NO_DATA_YET, retry=True)
                return
        _send(handler, await forward(handler.request, socket_path, path))
    except OSError:
        send_message(handler, 502, NO_ANSWER)


def _send(handler: web.RequestHandler, response: Response) -> None:
    response = protect(response)
    handler.set_status(response.status)
    for name, value in response.headers.get_all():
        handler.set_header(name, value)
    handler.finish(response.body)


def send_cors_headers(handler: web.RequestHandler) -> None:
    """Answer an OPTIONS request: the sandboxed page may send TensorBoard's own headers."""
    for name, value in SAFE_HEADERS.items():
        handler.set_header(name, value)
    handler.set_header("Access-Control-Allow-Methods", "GET, HEAD, POST")
    handler.set_header("Access-Control-Allow-Headers", "*")
    handler.set_header("Access-Control-Max-Age", "600")
    handler.set_status(204)
    handler.finish()


def _is_empty(listing: Response) -> bool:
    if listing.status != 200:
        return False
    try:
        dashboards = msgspec.json.decode(listing.body, type=dict[str, _Dashboard])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return bool(dashboards) and not any(dashboard.enabled for dashboard in dashboards.values())


class _Dashboard(msgspec.Struct):
    enabled: bool


def send_message(handler: web.RequestHandler, status: int, sentence: str, *, retry: bool = False) -> None:
    """Send a page with one sentence; with ``retry``, the browser asks again after a moment."""
    handler.set_status(status)
    handler.set_header("Content-Type", "text/html; charset=utf-8")
    handler.set_header("Cache-Control", "no-store")
    for name, value in SAFE_HEADERS.items():
        handler.set_header(name, value)
    refresh = f'<meta http-equiv="refresh" content="{_RETRY_S}">' if retry else ""
    handler.finish(
        f'<!doctype html><html><head><meta charset="utf-8"><title>TensorBoard</title>{refresh}</head>'
        f"{h('body', sentence, style='font: 14px/1.5 system-ui, sans-serif; margin: 2em')}</html>"
    )


def protect(response: Response) -> Response:
    """Return a response of TensorBoard that is safe to pass on."""
    status, body = response.status, response.body
    kept = {name: response.headers[name] for name in _CONTENT_HEADERS if name in response.headers}
    is_uncompressed = response.headers.get("Content-Encoding", "identity") == "identity"
    is_page = is_uncompressed and response.headers.get("Content-Type", "").startswith("text/html")
    if is_page and _SHIM not in body:  # a page that has it was adapted by the kernel, for the Jupyter server
        # The shim comes before the page's scripts, and fonts are found below any path.
        body = body.replace(b"<head>", b"<head>" + _SHIM, 1).replace(b"url(/font-roboto/", b"url(font-roboto/")
    if status in range(300, 400) and status != 304:
        status, body = 502, b"TensorBoard redirected elsewhere, which it has no reason to do."
        kept = {"Content-Type": "text/plain; charset=utf-8"}
    return Response(status, HTTPHeaders({**kept, **SAFE_HEADERS}), body)


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
    """Send the request to ``path`` at the socket; raises OSError if nobody there answers in time."""
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
    return await _ask(forwarded, socket_path)


async def fetch(socket_path: str, path: str) -> Response:
    """Request ``path`` at the socket for our own use; raises OSError as `forward` does."""
    return await _ask(HTTPRequest(f"http://tensorboard{path}", request_timeout=_TIMEOUT_S), socket_path)


async def _ask(request: HTTPRequest, socket_path: str) -> Response:
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
