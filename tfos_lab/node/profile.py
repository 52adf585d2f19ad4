"""A node's part of a profile: its child traces, samples and reports on a thread; its agent sends the trace."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from tfos_lab.core import messages as m
from tfos_lab.core.sources import label
from tfos_lab.core.threads import frames_of_threads, outwards
from tfos_lab.node.files.listed import read_piece
from tfos_lab.node.stacks import Place, own_part

_FOLDER = "profile-"
_one_at_a_time = threading.Lock()


def profile_folder(request: int) -> str:
    """Return the folder below an agent's own that has the trace of a request until the driver has fetched it."""
    return f"{_FOLDER}{request}"


def is_of_trace(wanted: m.PieceWanted) -> bool:
    """Whether a piece of a trace is wanted."""
    return wanted.folder.startswith(_FOLDER)


def trace_piece(wanted: m.PieceWanted, scratch: Path) -> m.FilePiece:
    """Return a piece of a trace; a file that has been read to its end is removed."""
    path = scratch / wanted.folder / wanted.name
    piece = read_piece(wanted, path)
    with contextlib.suppress(OSError):
        if wanted.offset + len(piece.data) >= path.stat().st_size:
            path.unlink()
    return piece


def start_profile(wanted: m.ProfileWanted, scratch: Path, send: Callable[[m.FromAgent], None]) -> None:
    """Profile this process on a thread, which sends a `Profiled` in the end."""
    arguments = (wanted, scratch / profile_folder(wanted.request), send)
    threading.Thread(target=_profile, args=arguments, name="tfos-profile", daemon=True).start()


def _profile(wanted: m.ProfileWanted, folder: Path, send: Callable[[m.FromAgent], None]) -> None:
    if not _one_at_a_time.acquire(blocking=False):
        send(m.Profiled(wanted.request, problem="it is being profiled already: wait for that to end"))
        return
    try:
        profiled = _take(wanted, folder)
    except Exception as error:  # noqa: BLE001 - the driver waits for an answer, whatever has happened
        profiled = m.Profiled(wanted.request, problem=f"{type(error).__name__}: {error}")
    finally:
        _one_at_a_time.release()
    send(profiled)


def _take(wanted: m.ProfileWanted, folder: Path) -> m.Profiled:
    sampler = Sampler()
    note = wanted.no_trace or _start_trace(folder)
    try:
        sampler.run(wanted.seconds)
    finally:
        # Else TensorFlow refuses every later one.
        note = note or _stop_trace()
    return m.Profiled(wanted.request, PERIOD_S, sampler.samples, _files_in(folder), note)


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


PERIOD_S = 0.01
# More stacks than this are no picture any more: the most frequent ones are kept.
_MAX_STACKS = 5_000
_MAX_FRAMES = 100
# Where a thread waits for something to do.
_IDLE = frozenset({"wait", "wait_for", "select", "poll", "accept", "_wait_for_tstate_lock", "_recv_msg"})

_Stack = tuple[str, ...]


class Sampler:
    """Counts stacks; the thread that samples, and those of tfos_lab, are left out."""

    def __init__(self) -> None:
        self._counts: Counter[_Stack] = Counter()

    def run(self, seconds: float) -> None:
        """Sample for so many seconds."""
        end_s = time.monotonic() + seconds
        while (now_s := time.monotonic()) < end_s:
            self.sample()
            time.sleep(max(0.0, PERIOD_S - (time.monotonic() - now_s)))

    def sample(self) -> None:
        """Look once at all threads; those that wait for work count only if it is the main one."""
        main = threading.main_thread().ident
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        with frames_of_threads() as frames:
            for ident, frame in frames.items():
                name = names.get(ident, "thread")
                if ident == main:
                    self._counts["\tmain thread", *_frames(frame)] += 1
                elif not name.startswith("tfos-") and frame.f_code.co_name not in _IDLE:
                    self._counts[f"\t{name}", *_frames(frame)] += 1

    @property
    def samples(self) -> list[tuple[list[str], int]]:
        """Stacks and how often each was found, the most frequent first."""
        return [(list(stack), count) for stack, count in self._counts.most_common(_MAX_STACKS)]


def _frames(frame: FrameType) -> list[str]:
    # Lines of one function are one frame: the picture is of functions.
    codes = [one.f_code for one in outwards(frame)]
    found = [Place(code.co_filename, code.co_firstlineno, code.co_name) for code in codes]
    return [_frame(place) for place in own_part(found[::-1])[:_MAX_FRAMES]]


def _frame(place: Place) -> str:
    cell = label(place.file)
    where = f"{cell}, line {place.line}" if cell else f"{Path(place.file).name}:{place.line}"
    return f"{place.package}\t{place.function} ({where})"
