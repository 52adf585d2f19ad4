"""Calls the user's function and returns how it ended as an `Outcome`; used by children and by the inline launcher."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tfos_lab.errors.channel import own_error_in
from tfos_lab.messages import Outcome
from tfos_lab.node.keyboard import explained
from tfos_lab.node.traceback_text import format_remote
from tfos_lab.values import encode_value
from tfos_lab.values.encode import LIMIT_BYTES

# What the results of all nodes of a cluster may take together.
RESULTS_BYTES = 2 << 30

# Raised by TensorFlow on a node whose peer is gone; the driver looks for the cause on other nodes first.
_PEER_ERRORS = (
    "UnavailableError",
    "PSUnavailableError",
    "ClosureInputError",
    "ClosureAbortedError",
    "AbortedError",
    "CancelledError",
    "DeadlineExceededError",
    "InternalError",
)
_PEER_TEXT = ("collective", "connection", "peer", "socket closed", "coordination", "heartbeat", "barrier", "task")


class NodeServed(BaseException):
    """Ends the user's function on a node that only serves others, such as a parameter server, when its work is done."""


def call_map_fun(map_fun: Callable[..., Any], args: Any, context: Any) -> Any:
    """Call ``map_fun(args, ctx)``, or with as many of the two as it takes."""
    try:
        parameters = inspect.signature(map_fun).parameters.values()
    except (TypeError, ValueError):
        return map_fun(args, context)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters) or len(positional) >= 2:
        return map_fun(args, context)
    return map_fun(args) if positional else map_fun()


def outcome_of(map_fun: Callable[..., Any], args: Any, context: Any) -> Outcome:
    """Run the function to its end; never raises."""
    try:
        value = call_map_fun(map_fun, args, context)
    except NodeServed:
        return Outcome(kind="returned", value=encode_value(None))
    except SystemExit as leave:
        if not leave.code:
            return Outcome(kind="returned", value=encode_value(None))
        code = leave.code if isinstance(leave.code, int) else 1
        text = "" if isinstance(leave.code, int) else str(leave.code)
        return Outcome(kind="exited", exit_code=code, message=text)
    except BaseException as error:  # noqa: BLE001 - whatever the function raised is the outcome
        name, message, text = format_remote(_unwrapped(error) or explained(error))
        return Outcome(
            kind="raised", error=name, message=message, traceback=text, consequence=is_consequence(name, message)
        )
    cluster_spec = getattr(context, "cluster_spec", {})
    nodes = sum(map(len, cluster_spec.values()))
    return returned_outcome(value, implicit=bool(getattr(map_fun, "__tfos_implicit__", False)), nodes=nodes)


def _unwrapped(error: BaseException) -> BaseException | None:
    """Return the error of tfos_lab that TensorFlow has wrapped into one of its own, as when a dataset is read."""
    if type(error).__module__.partition(".")[0] != "tensorflow":
        return None  # what users make of an error is theirs
    own = own_error_in(error)
    return own and own.with_traceback(error.__traceback__)


def returned_outcome(value: Any, *, implicit: bool, nodes: int = 1) -> Outcome:
    """Return the outcome of a function that returned ``value`` on one of so many nodes.

    It is ``implicit`` if that was a cell's last expression.
    """
    # Results wait in the driver's memory until somebody looks at them.
    limit_bytes = min(LIMIT_BYTES, RESULTS_BYTES // max(1, nodes))
    try:
        return Outcome(kind="returned", value=encode_value(value, limit_bytes=limit_bytes, implicit=implicit))
    except (TypeError, ValueError) as error:
        return Outcome(kind="raised", error=type(error).__name__, message=str(error))


def is_consequence(error: str, message: str) -> bool:
    """Whether an error is probably a consequence of another node's end."""
    text = message.lower()
    return error in _PEER_ERRORS and any(word in text for word in _PEER_TEXT)
