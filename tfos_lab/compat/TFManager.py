"""A separate process that holds queues and values for others: `start` one, `connect` to it from elsewhere.

Nodes of our clusters need none: rows come to them by the feed. Programs and tests may start one of their own.
Whoever connects has to prove that it knows the key before anything is read from it.
"""

from __future__ import annotations

import queue
from collections.abc import Sequence
from multiprocessing.managers import BaseManager
from typing import Any

# What the manager's process holds; its other processes leave these empty.
_queues: dict[str, queue.Queue[Any]] = {}
_values: dict[Any, Any] = {}

mgr: TFManager | None = None  #: the manager that this process has started last


class TFManager(BaseManager):
    """A manager with the methods ``get_queue(name)``, ``get(key)`` and ``set(key, value)``.

    They return proxies: ``str(manager.get("state"))`` is the ``repr`` of the value, such as ``"'running'"``.
    """


def start(authkey: bytes | str, queues: Sequence[str], mode: str = "local") -> TFManager:
    """Start a manager's process.

    Parameters
    ----------
    authkey : bytes or str
        The key that others have to know; it may not be empty.
    queues : sequence of str
        Names of the queues to make.
    mode : {"local", "remote"}
        ``"local"`` for processes on this host, over a unix socket; ``"remote"`` for other hosts too, over a TCP port.

    Returns
    -------
    TFManager
        Its process ends with this one, or with ``shutdown()``.
    """
    global mgr  # noqa: PLW0603 - programs find it under this name
    address = ("", 0) if mode == "remote" else None
    mgr = TFManager(address, _key(authkey))
    mgr.start(_make_queues, (list(queues),))
    return mgr


def connect(address: str | tuple[str, int], authkey: bytes | str) -> TFManager:
    """Connect to a manager that another process has started.

    Parameters
    ----------
    address : str or tuple of str and int
        Its ``address``.
    authkey : bytes or str
        Its key.

    Raises
    ------
    multiprocessing.AuthenticationError
        If the key is another one.
    """
    manager = TFManager(address, _key(authkey))
    manager.connect()
    return manager


def _key(authkey: bytes | str) -> bytes:
    key = authkey.encode() if isinstance(authkey, str) else bytes(authkey)
    if not key:
        raise ValueError("authkey is empty, and anyone could connect: give a secret, such as uuid.uuid4().bytes")
    return key


def _make_queues(names: list[str]) -> None:
    _values.clear()
    _queues.clear()
    _queues.update((name, queue.Queue()) for name in names)


def _get_queue(qname: str) -> queue.Queue[Any] | None:
    return _queues.get(qname)


def _get(key: Any) -> Any:
    return _values[key]


def _set(key: Any, value: Any) -> None:
    _values[key] = value


TFManager.register("get_queue", callable=_get_queue)
TFManager.register("get", callable=_get)
TFManager.register("set", callable=_set)
