"""A stand-in for a node's native context, for tests without a cluster."""

from __future__ import annotations

import socket
from typing import Any


class FakeContext:
    """Has rows for each queue, and records what is done to it."""

    def __init__(self, rows: dict[str, list[Any]] | None = None, port: socket.socket | None = None, **attributes: Any):
        self._rows = rows or {}
        self._port = port
        self.results: list[Any] = []
        self.stopped = False
        self.__dict__.update(attributes)

    def data_feed(self, train_mode=True, input_mapping=None, *, queue="input"):
        return _FakeFeed(self, self._rows[queue])

    def stop_feed(self):
        self.stopped = True

    def _take_port(self):
        return self._port


class _FakeFeed:
    def __init__(self, context, rows):
        self._context = context
        self._rows = rows

    def next_batch(self, batch_size):
        assert type(batch_size) is int
        batch, self._rows = self._rows[:batch_size], self._rows[batch_size:]
        return batch

    def should_stop(self):
        return not self._rows

    def batch_results(self, results):
        self._context.results += results

    def terminate(self):
        self._rows = []
        self._context.stop_feed()
