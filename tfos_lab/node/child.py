"""The child: the process that runs the user's function. It is forked warm, and its output goes to the agent."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import functools
import io
import os
import socket
import sys
import threading
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from tfos_lab.core import messages as m
from tfos_lab.core.frames import FrameSocket, peer_of
from tfos_lab.core.lazy_imports import after_import
from tfos_lab.core.processes import adopt_orphans, set_process_name
from tfos_lab.errors import NoKeyboard, PayloadError
from tfos_lab.node.context.shown import show_by
from tfos_lab.node.files.working_folder import FOLDER, own_what_is_written
from tfos_lab.node.stacks import register_dump

if TYPE_CHECKING:
    from tfos_lab.node.session import NodeSession


def run(_body: bytes, fds: list[int]) -> int:
    """Entry point in the forked process: ``fds`` are the control socket, stdout, stderr, and the held port."""
    adopt_orphans()  # so that all that the function starts stays below this process
    sock = socket.socket(fileno=os.dup(fds[0]))
    _redirect_output(fds[1], fds[2])
    port = socket.socket(fileno=os.dup(fds[3])) if len(fds) > 3 else None
    for fd in fds:
        os.close(fd)

    from tfos_lab.node.files.result import NAME
    from tfos_lab.node.session import AgentWatch, NodeSession
    from tfos_lab.node.strategy import end_servers_with_training

    control = FrameSocket(sock)
    try:
        start = m.decode_to_agent(control.receive().data)
    except ConnectionError:
        return 0  # its agent ended before all nodes had reserved
    assert isinstance(start, m.Start)
    os.environ.update(start.env)
    set_process_name(f"tfos {start.job_name}:{start.task_index}")
    scratch = Path(os.environ["TFOS_LAB_SCRATCH"])
    if Path.cwd() == (scratch / FOLDER).resolve():
        own_what_is_written(scratch / FOLDER)
    known = set(sys.path)
    sys.path[:] = [*(path for path in start.sys_path if path not in known), *sys.path]
    register_dump(scratch)
    session = NodeSession(control, start, scratch, port=port, agent=AgentWatch(peer_of(sock)))
    show_by(session.context)
    serve = session.context._serve  # noqa: SLF001 - users see no such method
    after_import("tensorflow", functools.partial(end_servers_with_training, serve))
    outcome = _run_function(session, start, scratch / NAME)
    _flush()
    session.send_ended(outcome)
    # Other nodes may still need this process as a peer in a collective: it exits when all have returned.
    session.finish.wait()
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()  # noqa: SLF001 - what Python itself does at exit
    _flush()
    # TensorFlow's own teardown may wait for peers that are gone.
    os._exit(0)


def _redirect_output(stdout: int, stderr: int) -> None:
    """Point descriptors 1 and 2 at the agent's pipes, so that output of C++ code arrives too."""
    _flush()
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for name, fd in (("stdout", 1), ("stderr", 2)):
        stream = io.TextIOWrapper(
            io.FileIO(fd, "w", closefd=False), encoding="utf-8", errors="backslashreplace", write_through=True
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    faulthandler.enable(file=2, all_threads=False)  # a crash in C++ code leaves its Python stack in the log
    _disable_keyboard()


class _NoInput(io.TextIOWrapper):
    """Standard input that refuses to be read by lines, as `input` does; reading it whole returns nothing, as usual."""

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]  # noqa: ARG002 - as in Python
        """Refuse: an empty line would surface as an EOFError without an explanation."""
        raise NoKeyboard(asked="input()")

    def __next__(self) -> str:  # type: ignore[override]  # as TextIOWrapper itself does
        raise StopIteration


def _disable_keyboard() -> None:
    """Make ``input()`` and ``breakpoint()`` raise an error that says what to do instead: a node has no keyboard."""
    sys.stdin = _NoInput(io.FileIO(0, "r", closefd=False), encoding="utf-8")
    original_hook = sys.breakpointhook

    def refuse(*args: Any, **kwargs: Any) -> Any:
        if os.environ.get("PYTHONBREAKPOINT"):
            return original_hook(*args, **kwargs)  # a remote debugger, or none at all
        raise NoKeyboard(asked="breakpoint()")

    sys.breakpointhook = refuse


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _run_function(session: NodeSession, start: m.Start, result_file: Path) -> m.Outcome:
    """Run the user's function and return how it ended."""
    from tfos_lab.core.payload import unpack
    from tfos_lab.node.files.payload import payload_of
    from tfos_lab.node.invoke import outcome_of

    try:
        map_fun, args = unpack(payload_of(start))
    except PayloadError as error:
        return m.Outcome(kind="raised", error="PayloadError", message=str(error))
    _own(map_fun)
    session.context.args = args
    session.send_running()
    outcome = outcome_of(map_fun, args, session.context, result_file=result_file)
    if outcome.kind == "returned":
        # Wait for the function's own threads, as Python does at the end of a script.
        for thread in threading.enumerate():
            if not thread.daemon and thread is not threading.main_thread():
                thread.join(timeout=start.grace_s)
    return outcome


def _own(value: Any) -> None:
    """Let ``__main__`` have what the notebook's has of a value: pickle looks for functions and classes there, by name.

    So does a ``Pool`` of ``multiprocessing``.
    """
    main = sys.modules["__main__"]
    for found in getattr(value, "__globals__", {}).values():
        for thing in (found, type(found)):
            is_own = isinstance(thing, type | FunctionType) and thing.__module__ == "__main__"
            if is_own and vars(main).get(thing.__qualname__) is not thing:
                setattr(main, thing.__qualname__, thing)
                for part in (thing, *vars(thing).values()):
                    _own(part)
