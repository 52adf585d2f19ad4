"""A network cable as a process: moves Ethernet frames between two TAP devices, and loses, delays or holds up some.

One device is in the namespace where the process starts, the other in a host's. Both vanish with the process, which
ends with its standard input. The Linux of many a test machine lacks ``netem``; this needs ``/dev/net/tun`` only.

Each line of its input says what it does from now on: JSON with `Direction`'s fields, for ``"to_host"`` and
``"from_host"``. It answers each with a line.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path

_TUNSETIFF = 0x400454CA
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000
_CLONE_NEWNET = 0x40000000
# A frame that would wait longer than this in a slow line's queue is lost, as in a switch.
_QUEUE_S = 0.5
_MAX_FRAME = 65_536


@dataclass
class Direction:
    """What happens to the frames of one direction."""

    cut: bool = False
    loss: float = 0.0
    delay_s: float = 0.0
    bits_per_s: float = 0.0
    free_at: float = 0.0

    def due(self, size_bytes: int, now: float) -> float | None:
        """Return when a frame arrives; None if it never does."""
        if self.cut or (self.loss and random.random() < self.loss):
            return None
        if not self.bits_per_s:
            return now + self.delay_s
        starts = max(now, self.free_at)
        if starts - now > _QUEUE_S:
            return None
        self.free_at = starts + size_bytes * 8 / self.bits_per_s
        return self.free_at + self.delay_s


def open_tap(name: str) -> int:
    """Make a TAP device in this process's network namespace; it lives as long as the descriptor."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return fd


def _enter(namespace: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/run/netns/{namespace}").open() as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


class Wire:
    """Both ends, and the frames on their way."""

    def __init__(self, bridge_end: int, host_end: int) -> None:
        self._peers = {bridge_end: host_end, host_end: bridge_end}
        self._names = {bridge_end: "to_host", host_end: "from_host"}
        self._directions = {"to_host": Direction(), "from_host": Direction()}
        self._under_way: list[tuple[float, int, int, bytes]] = []
        self._count = 0

    def run(self) -> None:
        """Move frames until the standard input ends."""
        while True:
            ready, _, _ = select.select([0, *self._peers], [], [], self._wait_s())
            if 0 in ready and not self._follow_line():
                return
            for end in self._peers:
                if end in ready:
                    self._take(end)
            self._deliver()

    def _wait_s(self) -> float | None:
        return max(0.0, self._under_way[0][0] - time.monotonic()) if self._under_way else None

    def _follow_line(self) -> bool:
        line = sys.stdin.readline()
        if line:
            self._directions = {name: Direction(**fields) for name, fields in json.loads(line).items()}
            _say("done")
        return bool(line)

    def _take(self, end: int) -> None:
        direction = self._directions[self._names[end]]
        for _ in range(64):
            try:
                frame = os.read(end, _MAX_FRAME)
            except OSError:  # nothing more, or the device is down
                return
            due = direction.due(len(frame), time.monotonic())
            if due is not None:
                self._count += 1
                heapq.heappush(self._under_way, (due, self._count, self._peers[end], frame))

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._under_way and self._under_way[0][0] <= now:
            _, _, end, frame = heapq.heappop(self._under_way)
            try:
                os.write(end, frame)
            except OSError:  # the device is down: the frame is lost
                continue


def main(bridge_name: str, namespace: str, host_name: str) -> None:
    """Make both devices, say so, and move frames."""
    bridge_end = open_tap(bridge_name)
    _enter(namespace)
    wire = Wire(bridge_end, open_tap(host_name))
    _say("ready")
    wire.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
