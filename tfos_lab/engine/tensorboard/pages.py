"""Sends a run's TensorBoard pages to browsers: sandboxed, and never blank.

Used by the handlers of the Jupyter server, and by those of `http_server`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tfos_lab.engine.tensorboard.forward import Response, fetch, forward
from tfos_lab.engine.tensorboard.message_page import NO_DATA_YET, message_page
from tfos_lab.engine.tensorboard.sandbox import SAFE_HEADERS, protect

if TYPE_CHECKING:
    from tornado import web

NO_ANSWER = "TensorBoard does not answer. It may still be starting: try again in a moment."

_FIRST_PAGE = "/"
# TensorBoard's list of its dashboards, with whether each has something to show.
_LISTING = "/data/plugins_listing"
_UNAVAILABLE = 503


async def send_page(handler: web.RequestHandler, socket_path: str, path: str) -> None:
    """Pass the handler's request on to ``path`` of the TensorBoard at ``socket_path``, and send its response.

    The first page is withheld until there is something to show: opened earlier, TensorBoard would go on saying for a
    while that no dashboards are active. A TensorBoard that cannot list its dashboards yet says so itself; it may be up
    a moment later, still with nothing to show.
    """
    try:
        if path == _FIRST_PAGE:
            listing = await fetch(socket_path, _LISTING)
            if listing.status == _UNAVAILABLE:
                _send(handler, listing)
                return
            if _is_empty(listing):
                send_message(handler, _UNAVAILABLE, NO_DATA_YET, retry=True)
                return
        _send(handler, await forward(handler.request, socket_path, path))
    except OSError:
        send_message(handler, 502, NO_ANSWER)


def _send(handler: web.RequestHandler, response: Response) -> None:
    """Send TensorBoard's response, made safe."""
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
    """Whether none of TensorBoard's dashboards has anything to show."""
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
    handler.finish(message_page(sentence, retry=retry))
