"""TensorBoard of a run: a logged-in user gets a ticket, and with it TensorBoard's pages.

The pages are sandboxed (see `driver.tensorboard.pages`), so the browser sends no cookies for what they load: the
ticket in their address replaces the login. It is valid for one run, as long as this server lives.
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
from tfos_lab.driver.tensorboard.pages import NO_ANSWER, send_cors_headers, send_message, send_page

_UNKNOWN = (
    "This run is no longer known here: its kernel has ended. "
    "%tfos tensorboard FOLDER shows the event files of a folder."
)


class Tickets:
    """Issues and checks the tickets of this server."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def ticket_for(self, cluster_id: str) -> str:
        """Return the ticket for a run."""
        return hmac.new(self._secret, cluster_id.encode(), hashlib.sha256).hexdigest()

    def is_valid(self, cluster_id: str, ticket: str) -> bool:
        """Whether this is the ticket for that run."""
        return hmac.compare_digest(self.ticket_for(cluster_id), ticket)


class TensorBoardEntryHandler(JupyterHandler):
    """The address that users see: requires the login, and redirects to TensorBoard."""

    auth_resource = "kernels"

    def initialize(self, tickets: Tickets) -> None:
        """Receive the arguments of the route."""
        self._tickets = tickets

    @web.authenticated
    @authorized
    async def get(self, cluster_id: str) -> None:
        """Redirect to the run's TensorBoard."""
        record = cluster_records.find(cluster_id)
        if record is None or not record.tensorboard:
            send_message(self, 404, _UNKNOWN if record is None else "This run has no TensorBoard.")
            return
        path = f"tfos-lab/tb/{quote(cluster_id)}/~{self._tickets.ticket_for(cluster_id)}/"
        # The address itself may contain the login token, which the page must not get.
        wanted = [(name, value) for name, value in parse_qsl(self.request.query) if name != "token"]
        query = f"?{urlencode(wanted)}" if wanted else ""
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        self.redirect(f"{self.base_url}{path}{query}")


class TensorBoardHandler(JupyterHandler):
    """Forwards requests with a ticket to the run's socket, without the user's cookies or tokens."""

    def initialize(self, tickets: Tickets) -> None:
        """Receive the arguments of the route."""
        self._tickets = tickets

    async def prepare(self, **how: Any) -> None:
        """Check the ticket before anything else; the login was checked when it was issued."""
        cluster_id, ticket, _ = self.path_args
        if self.request.headers.get("Upgrade") or not self._tickets.is_valid(cluster_id, ticket):
            raise web.HTTPError(403, "This address is old: open TensorBoard from the notebook again.")
        await super().prepare(**how)
        record = cluster_records.find(cluster_id)
        if record is None or not record.tensorboard:
            raise web.HTTPError(404, _UNKNOWN)
        self._socket = record.tensorboard

    def check_xsrf_cookie(self) -> None:
        """Accept: a sandboxed page has no cookies; its ticket, which no other page knows, replaces them."""

    def compute_etag(self) -> str | None:
        """Return none: TensorBoard sends its own, if any."""
        return None

    @allow_unauthenticated
    async def options(self, *_: str) -> None:
        """Let the sandboxed page ask with TensorBoard's own headers."""
        send_cors_headers(self)

    @allow_unauthenticated
    async def _forward(self, *_: str) -> None:
        # From the raw request, so that quoted characters stay quoted.
        path = self.request.path.partition(f"/~{self.path_args[1]}")[2]
        await send_page(self, self._socket, path)

    # TensorBoard requests much of its data by POST.
    get = head = post = _forward

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with one sentence on what is wrong."""
        error = kwargs.get("exc_info", (None, None))[1]
        sentence = error.log_message if isinstance(error, web.HTTPError) and status_code < 500 else None
        send_message(self, 502 if status_code == 500 else status_code, sentence or NO_ANSWER)
