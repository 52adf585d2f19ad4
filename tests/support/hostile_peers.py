"""Peers that have no keys, as a program: they do to a listener of ours what a stranger on the network can do.

    python -m tests.support.hostile_peers KIND HOST PORT SECONDS CONNECTIONS [RATE]

With RATE it opens at most so many connections a second, and sends each no more than its opening and one MiB.
It prints ``begun`` when it has opened them all, and at its end how many it has opened, and how many bytes it has sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_BLOB = bytes(1 << 20)
_GARBAGE_BYTES = 1 << 12


def client_hello() -> bytes:
    """Return how a handshake of TLS begins."""
    context, sent = ssl.create_default_context(), ssl.MemoryBIO()
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    return sent.read()


_HELLO = client_hello()


#: What each kind says first, and whether it goes on to send as fast as it can.
_OPENINGS = {
    "idle": (lambda: b"", False),
    "flood": (lambda: os.urandom(16) + struct.pack("!I", (1 << 32) - 1), True),
    "garbage": (lambda: os.urandom(_GARBAGE_BYTES), True),
    "hello": (lambda: _HELLO, False),
    "hello again": (lambda: _HELLO, False),
}


class Attack:
    """Connections to one listener; they are opened again when it closes them, but for those that begin a handshake."""

    def __init__(self, kind: str, address: tuple[str, int], connections: int, rate: float = 0.0) -> None:
        self._opening, self._floods = _OPENINGS[kind]
        self._rate = rate
        self._comes_again = kind != "hello"
        self._address = address
        self._wanted = connections
        self._open: list[socket.socket] = []
        self._begun = False
        self.opened = 0
        self.sent_bytes = 0

    def run(self, seconds: float) -> None:
        """Go on for so many seconds."""
        begin = time.monotonic()
        end = begin + seconds
        while time.monotonic() < end:
            while len(self._open) < self._wanted and (self._comes_again or not self._begun):
                if self._rate and self.opened >= self._rate * (time.monotonic() - begin):
                    time.sleep(0.005)
                    break
                self._connect()
            if not self._begun:
                self._begun = True
                sys.stdout.write("begun\n")
                sys.stdout.flush()
            before = self.sent_bytes
            self._open = [peer for peer in self._open if self._goes_on(peer)]
            if self.sent_bytes == before and (len(self._open) == self._wanted or not self._comes_again):
                time.sleep(0.01)

    def _connect(self) -> None:
        with contextlib.suppress(OSError):
            peer = socket.create_connection(self._address, timeout=1.0)
            self.opened += 1
            self._open.append(peer)
            peer.setblocking(False)
            self.sent_bytes += peer.send(self._opening())
            if self._rate and self._floods:
                self.sent_bytes += peer.send(_BLOB)

    def _goes_on(self, peer: socket.socket) -> bool:
        try:
            if self._floods and not self._rate:
                self.sent_bytes += peer.send(_BLOB)
            else:
                while peer.recv(1 << 16):
                    pass
                raise ConnectionResetError
        except BlockingIOError:
            return True
        except OSError:
            peer.close()
            return False
        return True


@contextlib.contextmanager
def attacking(
    kind: str, host: str, port: int, *, connections: int, seconds: float = 600.0, rate: float = 0.0
) -> Iterator[subprocess.Popen[str]]:
    """Attack a listener from another process within a ``with`` block; with a ``rate``, it leaves the CPU to others."""
    words = [kind, host, str(port), str(seconds), str(connections), str(rate)]
    command = [*(["nice", "-n", "19"] if rate else []), sys.executable, "-m", "tests.support.hostile_peers", *words]
    process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=30)


def resident_bytes() -> int:
    """Return how much memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_descriptors() -> int:
    """Return how many files and sockets this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


if __name__ == "__main__":
    _kind, _host, _port, _seconds, _connections, *_rate = sys.argv[1:]
    attack = Attack(_kind, (_host, int(_port)), int(_connections), *map(float, _rate))
    attack.run(float(_seconds))
    sys.stdout.write(f"{attack.opened} {attack.sent_bytes}\n")
