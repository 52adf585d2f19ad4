"""Calls the user's function and returns how it ended as an `Outcome`; used by children and by the inline launcher."""

from __future__ import annotations

import bdb
import inspect
import linecache
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfos_lab.core.crossing import own_error_in
from tfos_lab.core.messages import Outcome
from tfos_lab.core.values import LIMIT_BYTES, encode_result, encode_value
from tfos_lab.data.model_files import SAVED
from tfos_lab.errors import NoKeyboard, ResultNotStored
from tfos_lab.node.traceback_text import format_remote, informing_part
from tfos_lab.texts import encodable

# What a result that comes home as a file may take, and those of all nodes of a cluster together.
RESULT_BYTES = 2 << 30
RESULTS_BYTES = 16 << 30

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
# What `tfos_lab.gfile` says of a store begins with its address: that is no other node.
_STORE = re.compile(r"(\{\{.*?\}\} )?[a-z][a-z0-9+.-]*://")
# A loop over batches of two parts, where those with a label have three.
_UNPACKED = "too many values to unpack (expected 2)"
# What Keras' layers say of a column of one value, where the model does not begin with an input of that shape.
_ONE_VALUE = re.compile(r"expected min_ndim=2, found ndim=1\. Full shape received: \((None|\d+),\)$")
_READS_BATCHES = re.compile(r"\.(dataset|validation)\(")
_PEER_TEXT = ("collective", "connection", "peer", "socket closed", "coordination", "heartbeat", "barrier", "task")


class NodeServed(BaseException):
    """Ends the user's function on a node that only serves others, such as a parameter server, when its work is done."""


def call_map_fun(map_fun: Callable[..., Any], args: Any, context: Any) -> Any:
    """Call ``map_fun(args, ctx)``, or with as many of the two as it takes: of one, ``ctx`` if that is its name."""
    try:
        return _call(map_fun, args, context)
    except ValueError as error:
        _explain(error)
        raise


def _call(map_fun: Callable[..., Any], args: Any, context: Any) -> Any:
    try:
        parameters = inspect.signature(map_fun).parameters.values()
    except (TypeError, ValueError):
        return map_fun(args, context)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters) or len(positional) >= 2:
        return map_fun(args, context)
    if not positional:
        return map_fun()
    return map_fun(context if positional[0].name == "ctx" else args)


def outcome_of(map_fun: Callable[..., Any], args: Any, context: Any, *, result_file: Path | None = None) -> Outcome:
    """Run the function to its end, and write a large result to a file; never raises."""
    try:
        value = call_map_fun(map_fun, args, context)
    except NodeServed:
        return Outcome(kind="returned", value=encode_value(None))
    except SystemExit as leave:
        if not leave.code:
            return Outcome(kind="returned", value=encode_value(None))
        code = leave.code if isinstance(leave.code, int) else 1
        text = "" if isinstance(leave.code, int) else encodable(str(leave.code))
        return Outcome(kind="exited", exit_code=code, message=text)
    except BaseException as error:  # noqa: BLE001 - whatever the function raised is the outcome
        if isinstance(error, bdb.BdbQuit):  # it quits for want of a keyboard
            error = NoKeyboard(asked="the debugger").with_traceback(error.__traceback__)
        name, message, text = format_remote(_unwrapped(error) or error)
        told, consequence = informing_part(message), is_consequence(name, message)
        return Outcome(kind="raised", error=name, message=told, traceback=text, consequence=consequence)
    cluster_spec = getattr(context, "cluster_spec", {})
    nodes = sum(map(len, cluster_spec.values()))
    implicit = bool(getattr(map_fun, "__tfos_implicit__", False))
    return returned_outcome(value, implicit=implicit, nodes=nodes, result_file=result_file)


def _explain(error: ValueError) -> None:
    """Add advice to what Python and Keras say of batches that are not as the function expects them."""
    text, advice = str(error), ""
    if text == _UNPACKED:
        frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
        if _READS_BATCHES.search(linecache.getline(frame.f_code.co_filename, line)):
            weights = "a batch with a label is (x, y, w), where w are its rows' weights"
            advice = f"{weights}: write for x, y, w in ctx.dataset(...)"
    elif _ONE_VALUE.search(text):
        advice = "a column of one value per row is (rows,): begin the model with keras.Input((1,))"
    if advice:
        error.args = (f"{text}: {advice}",)


def _unwrapped(error: BaseException) -> BaseException | None:
    """Return the error of tfos_lab that TensorFlow has wrapped into one of its own, as when a dataset is read."""
    if type(error).__module__.partition(".")[0] != "tensorflow":
        return None  # what users make of an error is theirs
    own = own_error_in(error)
    return own and own.with_traceback(error.__traceback__)


def returned_outcome(value: Any, *, implicit: bool, nodes: int = 1, result_file: Path | None = None) -> Outcome:
    """Return the outcome of a function that returned ``value`` on one of so many nodes.

    It is ``implicit`` if that was a cell's last expression. A large value is written to ``result_file``; without one
    it is held in memory, here and on the driver, and may take less.
    """
    if implicit and isinstance(value, str) and value in SAVED:
        value = None
    try:
        if result_file is None:
            encoded = encode_value(value, limit_bytes=LIMIT_BYTES, implicit=implicit)
            return Outcome(kind="returned", value=encoded)
        limit_bytes = min(RESULT_BYTES, RESULTS_BYTES // max(1, nodes))
        encoded, stored_bytes = encode_result(value, result_file, limit_bytes=limit_bytes, implicit=implicit)
    except (TypeError, ValueError, ResultNotStored) as error:
        return Outcome(kind="raised", error=type(error).__name__, message=str(error))
    return Outcome(kind="returned", value=encoded, stored_bytes=stored_bytes)


def is_consequence(error: str, message: str) -> bool:
    """Whether an error is probably a consequence of another node's end."""
    text = message.lower()
    if _STORE.match(text):
        return False
    return error in _PEER_ERRORS and any(word in text for word in _PEER_TEXT)
