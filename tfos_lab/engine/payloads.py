"""Sends the payload to nodes that ask for it: one copy here, and only a few pieces on their way at a time.

A small payload is within the start message. Of a large one, nodes ask for pieces, and say with each question how much
they have: so the driver's memory does not grow with the number of nodes, however slow their network is.
"""

from __future__ import annotations

import functools
import hashlib
from collections import deque

import msgspec

from tfos_lab import messages as m
from tfos_lab.engine.state.instructions import Instruction, SendTo
from tfos_lab.messages import PIECE_BYTES

# Larger payloads are asked for. Every node is sent a start message at once, whose copies wait for the network.
INLINE_BYTES = 1 << 15
# All pieces that are on their way to nodes: 16 MiB.
_MAX_PIECES = 64
# A piece that was not acknowledged for so long is lost, or its node is: it is not waited for.
_LOST_S = 10.0


class PayloadSender:
    """Answers the nodes of one start. Pure: no sockets, threads or clock."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._sent: dict[tuple[int, int], float] = {}
        self._waiting: deque[m.PayloadWanted] = deque()

    @property
    def is_inline(self) -> bool:
        """Whether start messages contain the payload."""
        return len(self._payload) <= INLINE_BYTES

    @functools.cached_property
    def digest(self) -> str:
        """The payload's SHA-256, in hexadecimal."""
        return hashlib.sha256(self._payload).hexdigest()

    def add_to(self, start: m.Start) -> m.Start:
        """Return a node's start message with the payload, or with what the node needs to ask for it."""
        if self.is_inline:
            return msgspec.structs.replace(start, payload=self._payload)
        return msgspec.structs.replace(start, payload_bytes=len(self._payload), payload_digest=self.digest)

    def handle(self, message: m.PayloadWanted, now_s: float) -> list[Instruction]:
        """Handle a node's question; return the pieces that may be sent now, to whichever nodes wait for them."""
        for key in [key for key in self._sent if key[0] == message.rank and key[1] < message.taken]:
            del self._sent[key]
        if 0 <= message.offset < len(self._payload):
            self._waiting.append(message)
        if len(self._sent) >= _MAX_PIECES:
            self._sent = {key: sent_s for key, sent_s in self._sent.items() if now_s - sent_s < _LOST_S}
        answers: list[Instruction] = []
        while self._waiting and len(self._sent) < _MAX_PIECES:
            wanted = self._waiting.popleft()
            self._sent[wanted.rank, wanted.offset] = now_s
            data = self._payload[wanted.offset : wanted.offset + PIECE_BYTES]
            answers.append(SendTo(wanted.rank, m.PayloadPiece(offset=wanted.offset, data=data)))
        return answers
