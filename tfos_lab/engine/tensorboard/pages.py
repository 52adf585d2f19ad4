"""Answers of a run's TensorBoard as they are given to browsers: sandboxed, and always a page that says something.

For the handlers of the Jupyter server, and for those of a link where there is no such server.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import msgspec

from tfos_lab.engine.tensorboard.forward import Answer, fetch, forward
from tfos_lab.engine.tensorboard.sandbox import SAFE_HEADERS, protect

if TYPE_CHECKING:
    from tornado import web

NOT_THERE = "TensorBoard does not answer. It may still be starting: try again in a moment."
NOTHING_YET = (
    "TensorBoard runs, and waits for the first event files. Keras' TensorBoard callback writes them, which is one of "
    "ctx.callbacks(), and so does tf.summary below ctx.log_dir."
)

_FIRST_PAGE = "/"
# TensorBoard's list of its dashboards, each with whether it has something to show.
_LISTING = "/data/plugins_listing"
_AGAIN_S = 2


async def show(handler: web.RequestHandler, socket_path: str, path: str) -> None:
    """Answer with what the TensorBoard at ``socket_path`` says to the handler's request, asked for as ``path``.

    Its first page is kept back until it has something to show: a TensorBoard that was opened before would say for long
    that no dashboards are active.
    """
    try:
        if path == _FIRST_PAGE and _is_empty(await fetch(socket_path, _LISTING)):
            tell(handler, 503, NOTHING_YET, again=True)
            return
        answer = protect(await forward(handler.request, socket_path, path))
    except OSError:
        tell(handler, 502, NOT_THERE)
        return
    handler.set_status(answer.status)
    for name, value in answer.headers.get_all():
        handler.set_header(name, value)
    handler.finish(answer.body)


def permit(handler: web.RequestHandler) -> None:
    """Let the sandboxed page ask with TensorBoard's own headers."""
    for name, value in SAFE_HEADERS.items():
        handler.set_header(name, value)
    handler.set_header("Access-Control-Allow-Methods", "GET, HEAD, POST")
    handler.set_header("Access-Control-Allow-Headers", "*")
    handler.set_header("Access-Control-Max-Age", "600")
    handler.set_status(204)
    handler.finish()


def _is_empty(listing: Answer) -> bool:
    """Whether a TensorBoard says that none of its dashboards has anything to show."""
    if listing.status != 200:
        return False
    try:
        dashboards = msgspec.json.decode(listing.body, type=dict[str, _Dashboard])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return bool(dashboards) and not any(dashboard.enabled for dashboard in dashboards.values())


class _Dashboard(msgspec.Struct):
    enabled: bool


def tell(handler: web.RequestHandler, status: int, sentence: str, *, again: bool = False) -> None:
    """Answer with a page that holds one sentence; ``again`` has the page ask once more."""
    refresh = f'<meta http-equiv="refresh" content="{_AGAIN_S}">' if again else ""
    handler.set_status(status)
    handler.set_header("Content-Type", "text/html; charset=utf-8")
    handler.set_header("Cache-Control", "no-store")
    for name, value in SAFE_HEADERS.items():
        handler.set_header(name, value)
    handler.finish(
        f'<!doctype html><html><head><meta charset="utf-8"><title>TensorBoard</title>{refresh}</head>'
        f'<body style="font: 14px/1.5 system-ui, sans-serif; margin: 2em">{html.escape(sentence)}</body></html>'
    )
