"""TensorBoard of a run: who is logged in gets a ticket at the socket, and with it TensorBoard's pages.

The pages are sandboxed (see `engine.tensorboard.sandbox`), so the browser sends no cookies for what they load: the
ticket in their address stands for the login. It is good for one run, for as long as this server lives.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from jupyter_server.auth.decorator import allow_unauthenticated, authorized
from jupyter_server.base.handlers import JupyterHandler
from tornado import web

from tfos_lab.core import cluster_records
from tfos_lab.engine.tensorboard.pages import NO_ANSWER, send_cors_headers, send_message, send_page

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


class TensorBoardEntryHandler(JupyterHandler):
    """The address that is shown to the user: asks for the login, and leads to TensorBoard."""

    auth_resource = "kernels"

    def initialize(self, tickets: Tickets) -> None:
        """Take what the routes give."""
        self._tickets = tickets

    @web.authenticated
    @authorized
    async def get(self, cluster_id: str) -> None:
        """Lead to the run's TensorBoard."""
        record = cluster_records.find(cluster_id)
        if record is None or not record.tensorboard:
            send_message(self, 404, _UNKNOWN if record is None else "This run has no TensorBoard.")
            return
        path = f"tfos-lab/tb/{quote(cluster_id)}/~{self._tickets.ticket_for(cluster_id)}/"
        # A login may be in the address itself; it is not for the page.
        wanted = [(name, value) for name, value in parse_qsl(self.request.query) if name != "token"]
        query = f"?{urlencode(wanted)}" if wanted else ""
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        self.redirect(f"{self.base_url}{path}{query}")


class TensorBoardHandler(JupyterHandler):
    """Passes requests with a ticket on to the run's socket, without anything of the user's."""

    def initialize(self, tickets: Tickets) -> None:
        """Take what the routes give."""
        self._tickets = tickets

    async def prepare(self, **how: Any) -> None:
        """Check the ticket before anything else; the login was checked where it was given."""
        cluster_id, ticket, _ = self.path_args
        if self.request.headers.get("Upgrade") or not self._tickets.holds(cluster_id, ticket):
            raise web.HTTPError(403, "This address is old: open TensorBoard from the notebook again.")
        await super().prepare(**how)
        record = cluster_records.find(cluster_id)
        if record is None or not record.tensorboard:
            raise web.HTTPError(404, _UNKNOWN)
        self._socket = record.tensorboard

    def check_xsrf_cookie(self) -> None:
        """A sandboxed page has no cookies: its ticket, which no other page knows, stands for them."""

    def compute_etag(self) -> str | None:
        """TensorBoard's own, if any."""
        return None

    @allow_unauthenticated
    async def get(self, *_: str) -> None:
        """Fetch a page."""
        await self._pass_on()

    @allow_unauthenticated
    async def head(self, *_: str) -> None:
        """Ask about a page."""
        await self._pass_on()

    @allow_unauthenticated
    async def post(self, *_: str) -> None:
        """Fetch data; TensorBoard asks for much of it in this way."""
        await self._pass_on()

    @allow_unauthenticated
    async def options(self, *_: str) -> None:
        """Let the sandboxed page ask with TensorBoard's own headers."""
        send_cors_headers(self)

    async def _pass_on(self) -> None:
        # As it was asked for: what is quoted stays so.
        _, _, path = self.request.path.partition(f"/~{self.path_args[1]}")
        await send_page(self, self._socket, path)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Say in a sentence what is wrong."""
        error = kwargs.get("exc_info", (None, None))[1]
        sentence = error.log_message if isinstance(error, web.HTTPError) and status_code < 500 else None
        send_message(self, 502 if status_code == 500 else status_code, sentence or NO_ANSWER)
