"""A link to a run's TensorBoard for a browser on this machine, where no Jupyter server shows it.

An HTTP server on 127.0.0.1, at a port that the system chooses, which leads on to the TensorBoard's unix socket. All
users of the machine can reach a port: the first part of the link's path is a random token, and who does not know it is
told nothing. Pages are sandboxed as they are in the Jupyter server, and nothing that a browser knows of the user goes
on.
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

from tfos_lab.engine.tensorboard.pages import permit, show, tell

HOST = "127.0.0.1"
_START_TIMEOUT_S = 10.0
# The first page may have to wait until a TensorBoard has been started on this machine.
_TEST_TIMEOUT_S = 60.0
# What TensorBoard's pages ask for is said in a few words.
_MOST_BYTES = 1 << 20


class TensorBoardLink:
    """The link, good from when it is made until it is closed.

    Parameters
    ----------
    loop : asyncio.AbstractEventLoop
        Of another thread: it serves.
    socket_path : str
        Where the TensorBoard is reached.

    Raises
    ------
    OSError
        If no port can be opened, or nobody answers at the link.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, socket_path: str) -> None:
        token = secrets.token_hex(32)
        handler = (r"/([^/]*)(/.*)?", _Handler, {"token": token, "socket_path": socket_path})
        # The lines that tornado writes of requests would show the token.
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
        self._server = HTTPServer(self._application, max_body_size=_MOST_BYTES)
        self._server.add_socket(self._socket)

    def _test(self) -> None:
        """Ask for the first page, as a browser will."""
        connection = HTTPConnection(HOST, self._port, timeout=_TEST_TIMEOUT_S)
        try:
            connection.request("GET", self._path)
            ours = connection.getresponse().getheader("X-Tfos-Lab")
        except HTTPException as error:
            raise ConnectionError(f"no answer at port {self._port}: {error}") from error
        finally:
            connection.close()
        if ours is None:
            raise ConnectionError(f"somebody else answers at port {self._port}")

    def close(self) -> None:
        """Give the port back; may be called twice."""
        self._loop.call_soon_threadsafe(self._server.stop)


class _Handler(web.RequestHandler):
    """Passes requests that hold the token on to the TensorBoard."""

    def initialize(self, token: str, socket_path: str) -> None:
        """Take what the link gives."""
        self._token = token
        self._socket_path = socket_path

    def prepare(self) -> None:
        """Check the token before anything else."""
        if not hmac.compare_digest(self.path_args[0].encode(), self._token.encode()):
            tell(self, 404, "There is nothing here.")

    def compute_etag(self) -> str | None:
        """TensorBoard's own, if any."""
        return None

    async def get(self, *_: str) -> None:
        """Fetch a page."""
        await self._pass_on()

    async def head(self, *_: str) -> None:
        """Ask about a page."""
        await self._pass_on()

    async def post(self, *_: str) -> None:
        """Fetch data; TensorBoard asks for much of it in this way."""
        await self._pass_on()

    async def options(self, *_: str) -> None:
        """Let the sandboxed page ask with TensorBoard's own headers."""
        permit(self)

    async def _pass_on(self) -> None:
        # As it was asked for: what is quoted stays so.
        path = self.request.path.removeprefix(f"/{self._token}")
        if path:
            await show(self, self._socket_path, path)
        else:
            self.redirect(f"/{self._token}/")

    def write_error(self, status_code: int, **_: Any) -> None:
        """Say in a sentence what is wrong."""
        tell(self, status_code, "This cannot be asked here." if status_code < 500 else "Something went wrong here.")
