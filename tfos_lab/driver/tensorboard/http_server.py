"""An HTTP server for a run's TensorBoard, for a browser on this machine where no Jupyter server shows it.

It listens on 127.0.0.1, at a port that the system chooses, and passes requests on to the run's unix socket. All users
of the machine can reach a port, so the first part of the path is a random token; requests without it get a 404 and
nothing else. Pages are sandboxed as in the Jupyter server, and cookies and other headers about the user are removed.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from http.client import HTTPConnection, HTTPException
from typing import Any

from tornado import web
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from tfos_lab.driver.tensorboard.pages import send_cors_headers, send_message, send_page

HOST = "127.0.0.1"
_START_TIMEOUT_S = 10.0
# The first page may have to wait until a TensorBoard has been started on this machine.
_TEST_TIMEOUT_S = 60.0
# Requests of TensorBoard's pages are small.
_MAX_BODY_BYTES = 1 << 20


class TensorBoardHttpServer:
    """Serves a run's TensorBoard at `url`, from its construction until it is closed, on another thread's loop.

    Raises OSError if no port can be opened, or the address does not work.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, socket_path: str) -> None:
        token = secrets.token_hex(32)
        handler = (r"/([^/]*)(/.*)?", _Handler, {"token": token, "socket_path": socket_path})
        # Tornado's log lines of requests would show the token.
        self._application = web.Application([handler], log_function=lambda _handler: None)
        self._loop = loop
        [self._socket] = bind_sockets(0, HOST)
        self._port = self._socket.getsockname()[1]
        self._path = f"/{token}/"
        asyncio.run_coroutine_threadsafe(self._serve(), loop).result(_START_TIMEOUT_S)
        try:
            self._test()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The address, with the token."""
        return f"http://{HOST}:{self._port}{self._path}"

    async def _serve(self) -> None:
        self._server = HTTPServer(self._application, max_body_size=_MAX_BODY_BYTES)
        self._server.add_socket(self._socket)

    def _test(self) -> None:
        """Request the first page, as a browser will."""
        connection = HTTPConnection(HOST, self._port, timeout=_TEST_TIMEOUT_S)
        try:
            connection.request("GET", self._path)
            ours = connection.getresponse().getheader("X-Tfos-Lab")
        except HTTPException as error:
            raise ConnectionError(f"no answer at port {self._port}: {error}") from error
        finally:
            connection.close()
        if ours is None:
            raise ConnectionError(f"another server answers at port {self._port}")

    def close(self) -> None:
        """Close the port; may be called twice."""
        self._loop.call_soon_threadsafe(self._server.stop)


class _Handler(web.RequestHandler):
    """Passes requests with the token on to the run's socket."""

    def initialize(self, token: str, socket_path: str) -> None:
        """Store the server's token and socket."""
        self._token = token
        self._socket_path = socket_path

    def prepare(self) -> None:
        """Check the token before anything else."""
        if not hmac.compare_digest(self.path_args[0].encode(), self._token.encode()):
            send_message(self, 404, "There is nothing here.")

    def compute_etag(self) -> str | None:
        """Return none: TensorBoard's own is passed on."""
        return None

    async def get(self, *_: str) -> None:
        """Request a page."""
        await self._pass_on()

    async def head(self, *_: str) -> None:
        """Request the headers of a page."""
        await self._pass_on()

    async def post(self, *_: str) -> None:
        """Request data; TensorBoard's pages use POST for much of it."""
        await self._pass_on()

    async def options(self, *_: str) -> None:
        """Allow the sandboxed page's requests."""
        send_cors_headers(self)

    async def _pass_on(self) -> None:
        # The path as it was sent, still quoted.
        path = self.request.path.removeprefix(f"/{self._token}")
        if path:
            await send_page(self, self._socket_path, path)
        else:
            self.redirect(f"/{self._token}/")

    def write_error(self, status_code: int, **_: Any) -> None:
        """Send a page with one sentence."""
        send_message(
            self, status_code, "This cannot be asked here." if status_code < 500 else "Something went wrong here."
        )
