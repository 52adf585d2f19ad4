"""The child's part of a profile, on a thread of its own: traces, samples, and reports."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tfos_lab import messages as m
from tfos_lab.node.profile.sampler import PERIOD_S, Sampler

_one_at_a_time = threading.Lock()


def profile_folder(scratch: Path, request: int) -> Path:
    """Return where a node keeps the trace of a request until the driver has fetched it."""
    return scratch / f"profile-{request}"


def start_profile(rank: int, wanted: m.ProfileWanted, scratch: Path, send: Callable[[m.FromAgent], None]) -> None:
    """Profile this process on a thread, which sends a `Profiled` in the end."""
    arguments = (rank, wanted, profile_folder(scratch, wanted.request), send)
    threading.Thread(target=_profile, args=arguments, name="tfos-profile", daemon=True).start()


def _profile(rank: int, wanted: m.ProfileWanted, folder: Path, send: Callable[[m.FromAgent], None]) -> None:
    if not _one_at_a_time.acquire(blocking=False):
        send(m.Profiled(rank, wanted.request, problem="it is being profiled already: wait for that to end"))
        return
    try:
        profiled = _take(rank, wanted, folder)
    except Exception as error:  # noqa: BLE001 - the driver waits for an answer, whatever has happened
        profiled = m.Profiled(rank, wanted.request, problem=f"{type(error).__name__}: {error}")
    finally:
        _one_at_a_time.release()
    send(profiled)


def _take(rank: int, wanted: m.ProfileWanted, folder: Path) -> m.Profiled:
    sampler = Sampler()
    note = wanted.no_trace or _start_trace(folder)
    try:
        sampler.run(wanted.seconds)
    finally:
        # Else TensorFlow refuses every later one.
        note = note or _stop_trace()
    return m.Profiled(rank, wanted.request, PERIOD_S, sampler.samples, _files_in(folder), note)


def _files_in(folder: Path) -> dict[str, int]:
    """Return the trace's files with their sizes; what goes meanwhile was not to stay."""
    files = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                files[str(path.relative_to(folder))] = path.stat().st_size
    return files


def _start_trace(folder: Path) -> str:
    """Start TensorFlow's profiler; return why there will be no trace, or ""."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return "no trace: this process has not imported TensorFlow"
    try:
        tensorflow.profiler.experimental.start(str(folder))
    except Exception as error:  # noqa: BLE001 - such as another profiler's session, of Keras' TensorBoard callback
        return f"no trace: TensorFlow's profiler did not start ({type(error).__name__}: {error})"
    return ""


def _stop_trace() -> str:
    try:
        sys.modules["tensorflow"].profiler.experimental.stop()
    except Exception as error:  # noqa: BLE001 - as above
        return f"no trace: TensorFlow's profiler did not write it ({type(error).__name__}: {error})"
    return ""
