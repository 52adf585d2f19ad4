"""Answers of a run's TensorBoard as they are given to browsers: sandboxed, and always a page that says something.

For the handlers of the Jupyter server, and for those of a link where there is no such server.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from tfos_lab.engine.board.forward import forward
from tfos_lab.engine.board.sandbox import SAFE_HEADERS, protect

if TYPE_CHECKING:
    from tornado import web

NOT_THERE = "TensorBoard does not answer. It may still be starting: try again in a moment."


async def show(handler: web.RequestHandler, socket_path: str, path: str) -> None:
    """Answer with what the board at ``socket_path`` says to the handler's request, asked for as ``path``."""
    try:
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


def tell(handler: web.RequestHandler, status: int, sentence: str) -> None:
    """Answer with a page that holds one sentence."""
    handler.set_status(status)
    handler.set_header("Content-Type", "text/html; charset=utf-8")
    handler.set_header("Cache-Control", "no-store")
    for name, value in SAFE_HEADERS.items():
        handler.set_header(name, value)
    handler.finish(
        '<!doctype html><html><head><meta charset="utf-8"><title>TensorBoard</title></head>'
        f'<body style="font: 14px/1.5 system-ui, sans-serif; margin: 2em">{html.escape(sentence)}</body></html>'
    )
