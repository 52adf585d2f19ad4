"""TensorBoard of a run: who is logged in gets a ticket at the door, and with it TensorBoard's pages.

The pages are sandboxed (see `sandbox`), so the browser sends no cookies for what they load: the ticket in their address
stands for the login. It is good for one run, for as long as this server lives.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import secrets
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from jupyter_server.auth.decorator import allow_unauthenticated, authorized
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server_proxy.handlers import LocalProxyHandler
from tornado import web

from tfos_lab import beacons
from tfos_lab.jupyter_server.sandbox import SAFE_HEADERS

# What says who the user is, or where he comes from, is not for the node's eyes.
_PRIVATE = ("Cookie", "Authorization", "X-Xsrftoken", "Referer", "Origin", "X-Forwarded-For", "X-Real-Ip", "Forwarded")
_UNKNOWN = (
    "This run is not known here any more: the kernel that it belonged to has ended. "
    "%tfos tensorboard FOLDER shows the event files of a folder."
)


class Tickets:
    """Makes and checks the tickets of this server."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def ticket_for(self, cluster_id: str) -> str:
        """Return the ticket for a run."""
        return hmac.new(self._secret, cluster_id.encode(), hashlib.sha256).hexdigest()

    def holds(self, cluster_id: str, ticket: str) -> bool:
        """Whether it is the ticket for that run."""
        return hmac.compare_digest(self.ticket_for(cluster_id), ticket)


class BoardEntryHandler(JupyterHandler):
    """The address that is shown to the user: asks for the login, and leads to TensorBoard."""

    auth_resource = "kernels"

    def initialize(self, tickets: Tickets) -> None:
        """Take what the routes give."""
        self._tickets = tickets

    @web.authenticated
    @authorized
    async def get(self, cluster_id: str) -> None:
        """Lead to the run's TensorBoard."""
        beacon = beacons.find(cluster_id)
        if beacon is None or not beacon.tensorboard:
            self.set_status(404)
            tell(self, _UNKNOWN if beacon is None else "This run has no TensorBoard.")
            return
        path = f"tfos-lab/tb/{quote(cluster_id)}/~{self._tickets.ticket_for(cluster_id)}/"
        # A login may be in the address itself; it is not for the page.
        wanted = [(name, value) for name, value in parse_qsl(self.request.query) if name != "token"]
        query = f"?{urlencode(wanted)}" if wanted else ""
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        self.redirect(f"{self.base_url}{path}{query}")


class BoardHandler(LocalProxyHandler):  # type: ignore[misc]
    """Passes requests with a ticket on to the run's door, without anything of the user's."""

    def initialize(self, tickets: Tickets) -> None:
        """Take what the routes give."""
        self._tickets = tickets

    async def prepare(self) -> None:
        """Check the ticket before anything else; the login was checked where it was given."""
        cluster_id, ticket, _ = self.path_args
        if self.request.headers.get("Upgrade") or not self._tickets.holds(cluster_id, ticket):
            raise web.HTTPError(403, "This address is old: open TensorBoard from the notebook again.")
        await JupyterHandler.prepare(self)
        beacon = beacons.find(cluster_id)
        if beacon is None or not beacon.tensorboard:
            raise web.HTTPError(404, _UNKNOWN)
        self.unix_socket = beacon.tensorboard

    @allow_unauthenticated
    async def get(self, _cluster_id: str, _ticket: str, path: str) -> None:
        """Fetch a page."""
        await self._pass_on(path)

    @allow_unauthenticated
    async def head(self, _cluster_id: str, _ticket: str, path: str) -> None:
        """Ask about a page."""
        await self._pass_on(path)

    @allow_unauthenticated
    async def post(self, _cluster_id: str, _ticket: str, path: str) -> None:
        """Fetch data; TensorBoard asks for much of it in this way."""
        await self._pass_on(path)

    @allow_unauthenticated
    async def options(self, *_: str) -> None:
        """Let the sandboxed page ask with TensorBoard's own headers."""
        for name, value in SAFE_HEADERS.items():
            self.set_header(name, value)
        self.set_header("Access-Control-Allow-Methods", "GET, HEAD, POST")
        self.set_header("Access-Control-Allow-Headers", "*")
        self.set_header("Access-Control-Max-Age", "600")
        self.set_status(204)
        self.finish()

    put = delete = patch = web.RequestHandler._unimplemented_method  # noqa: SLF001 - answered with 405

    async def _pass_on(self, path: str) -> None:
        # As a stream, the answer would get past `protect`.
        self.request.headers["Accept"] = "*/*"
        await super().proxy(0, path)

    def proxy_request_headers(self) -> Any:
        """Return what the node may know of the request."""
        headers = super().proxy_request_headers()
        for name in _PRIVATE:
            headers.pop(name, None)
        if self.request.path.endswith(("/", ".html")):
            headers["Accept-Encoding"] = "identity"  # so that `protect` can add to it
        return headers

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Say in a sentence what is wrong."""
        error = kwargs.get("exc_info", (None, None))[1]
        sentence = error.log_message if isinstance(error, web.HTTPError) and status_code < 500 else None
        self.set_status(502 if status_code > 599 or status_code == 500 else status_code)
        tell(self, sentence or "TensorBoard does not answer. It may still be starting: try again in a moment.")


def tell(handler: Any, sentence: str) -> None:
    """Answer with a page that holds one sentence."""
    handler.set_header("Content-Type", "text/html; charset=utf-8")
    handler.set_header("Cache-Control", "no-store")
    for name, value in SAFE_HEADERS.items():
        handler.set_header(name, value)
    handler.finish(
        '<!doctype html><html><head><meta charset="utf-8"><title>TensorBoard</title></head>'
        f'<body style="font: 14px/1.5 system-ui, sans-serif; margin: 2em">{html.escape(sentence)}</body></html>'
    )
