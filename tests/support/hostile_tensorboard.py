"""A TensorBoard that has been taken over, at a unix socket: what tests of those who pass its pages on need."""

from __future__ import annotations

import http.server
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPMessage
from typing import Any, ClassVar

PAGE = b"<html><head><title>TensorBoard</title></head></html>"


class Node(http.server.BaseHTTPRequestHandler):
    """It sends what it should not, and keeps what it has heard."""

    heard: ClassVar[list[tuple[str, HTTPMessage]]] = []
    bodies: ClassVar[list[bytes]] = []
    listing: ClassVar[bytes] = PAGE
    listing_status: ClassVar[int] = 200

    def do_GET(self) -> None:
        page, status = PAGE, 302 if self.path == "/away" else 200
        if self.path == "/data/plugins_listing":
            page, status = self.listing, self.listing_status
        self.heard.append((self.path, self.headers))
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"] or 0)))
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Set-Cookie", "_xsrf=stolen; Path=/")
        self.send_header("Clear-Site-Data", '"cookies"')
        self.send_header("Content-Security-Policy", "default-src *")
        self.send_header("Location", "/user/alice/logout")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    do_POST = do_GET  # noqa: N815 - the base class' name

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def hostile_tensorboard(path: str) -> Iterator[str]:
    """Serve it at ``path``, and forget what it has heard before."""
    Node.heard.clear()
    Node.bodies.clear()
    with socketserver.ThreadingUnixStreamServer(path, Node) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()  # how late it is to shut down
        yield path
        server.shutdown()
