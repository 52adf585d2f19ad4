"""Looks now and then at the thread that runs the user's function, and tells what it spends its time with."""

from __future__ import annotations

import functools
import itertools
import os
import random
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from types import FrameType

from tfos_lab.core import messages as m
from tfos_lab.core import sources
from tfos_lab.core.processes import stat_of
from tfos_lab.core.threads import frames_of_threads, outwards
from tfos_lab.node.activity.fetches import FETCHES
from tfos_lab.node.activity.steps import FITS, STEPS

SAMPLE_S = 0.1
REPORT_S = 1.0
# Shares are of the last so many reports.
_REPORTS = 5
# Its own: a function that seeds Python's random numbers gets the same ones each time.
_random = random.Random()  # noqa: S311 - no secret


class ActivitySampler:
    """Samples one thread (in a thread ``tfos-activity``) from `start` to `stop`, and sends what it sees.

    ``rows`` returns how many rows of feeds have been taken. Fetches are counted where functions that are traced here
    run here: not on the chief of parameter servers.
    """

    def __init__(
        self,
        send: Callable[[m.FromAgent], None],
        rows: Callable[[], int],
        *,
        in_lock_step: bool,
        counts_fetches: bool,
    ) -> None:
        self._send = send
        self._rows = rows
        self._in_lock_step = in_lock_step
        self._counts_fetches = counts_fetches
        self._has_gpus = _has_gpus()
        self._thread_id = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfos-activity", daemon=True)
        # What the thread has been seen to do, and where: one look may find it between two of its steps.
        self._looks: deque[Counter[tuple[Doing, str]]] = deque([Counter()], maxlen=_REPORTS)
        self._rows_at: deque[tuple[float, int]] = deque(maxlen=_REPORTS + 1)
        self._busy = BusyThreads()
        self._where = ""

    def start(self) -> None:
        """Begin to sample the thread that calls this."""
        STEPS.start()
        FITS.start()
        FETCHES.start(enabled=self._counts_fetches)
        self._thread_id = threading.get_ident()
        self._rows_at.append((time.perf_counter(), self._rows()))
        self._thread.start()

    def stop(self) -> None:
        """End the thread, with a last report; may be called twice, and without `start`."""
        if self._thread.is_alive():
            self._over.set()
            self._thread.join(1.0)
        FETCHES.start(enabled=False)

    # ---- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        report_s = time.perf_counter() + REPORT_S
        # Steps that take as long as the time between two looks would be seen at the same moment each time.
        while not self._over.wait(_random.uniform(0.5, 1.5) * SAMPLE_S):
            self._sample()
            if time.perf_counter() >= report_s:
                report_s += REPORT_S
                self._report()
        self._report()

    def _sample(self) -> None:
        FETCHES.look()
        STEPS.fetch(FETCHES.taken)
        with frames_of_threads() as threads:
            frame = threads.pop(self._thread_id, None)
            if frame is not None and not frame.f_code.co_filename.endswith(_WAITS_FOR_CELLS):
                self._looks[-1][self._doing(frame, threads), where(frame)] += 1

    def _doing(self, frame: FrameType, others: Mapping[int, FrameType]) -> Doing:
        doing = what_it_does(frame)
        if doing is not Doing.TENSORFLOW:
            FETCHES.settle()
        elif FETCHES.in_flight:
            doing = Doing.DATA
        elif self._may_wait_in_collectives and not self._busy.any_runs:
            doing = Doing.PEERS
        if doing is Doing.DATA:
            return awaited_by(others.values()) or (Doing.TENSORFLOW if FITS.has_arrays else Doing.DATA)
        return doing

    @property
    def _may_wait_in_collectives(self) -> bool:
        """Whether a TensorFlow that sleeps waits for other nodes, and not for a GPU."""
        if not self._in_lock_step or self._has_gpus:
            return False
        module = sys.modules.get("tensorflow.python.eager.context")
        context = module.context_safe() if module is not None else None
        return getattr(context, "_collective_ops_server_def", None) is not None

    def _report(self) -> None:
        self._busy.look()
        self._rows_at.append((time.perf_counter(), self._rows()))
        (first_s, first), (last_s, last) = self._rows_at[0], self._rows_at[-1]
        counts, places = Counter[Doing](), Counter[str]()
        for (doing, place), count in sum(self._looks, Counter()).items():
            counts[doing] += count
            places[place] += count
        del counts[Doing.TRACING]
        share = {doing: count / counts.total() for doing, count in counts.items()}
        self._looks.append(Counter())
        step, step_s = STEPS.read()
        self._where = next((place for place, _ in places.most_common(1)), self._where)
        seen = m.NodeActivity(
            step=step,
            step_s=step_s,
            waits_rows=share.get(Doing.ROWS, 0.0),
            waits_data=share.get(Doing.DATA, 0.0),
            waits_peers=share.get(Doing.PEERS, 0.0),
            computes=share.get(Doing.TENSORFLOW, 0.0),
            python=share.get(Doing.PYTHON, 0.0),
            rows_s=(last - first) / max(last_s - first_s, 1e-3),
            where=self._where,
            has_gpu_peers=self._has_gpus and self._in_lock_step,
            trains_alone=FITS.is_alone,
            epochs=FITS.last_epoch[0],
            learning_rate=FITS.last_epoch[1],
        )
        self._send(m.Activity(seen))


def _has_gpus() -> bool:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return Path("/proc/driver/nvidia/gpus").is_dir()
    return visible.strip() not in ("", "-1")


# Of a hundred threads a few do all the work, and only those are looked at each time.
_MOST_WATCHED = 8
_OWN_TASKS = Path("/proc/self/task")


class BusyThreads:
    """Watches the threads that use the CPU; used by one thread, which is left out."""

    def __init__(self) -> None:
        self._ticks: dict[str, int] = {}
        self._watched: list[Path] = []

    def look(self) -> None:
        """Find the threads that have used the CPU since the last call."""
        before, self._ticks = self._ticks, {}
        own = str(threading.get_native_id())
        for task in _OWN_TASKS.iterdir() if _OWN_TASKS.is_dir() else ():
            if task.name != own and (fields := stat_of(task)):
                self._ticks[task.name] = int(fields[11]) + int(fields[12])
        used = {name: ticks - before.get(name, 0) for name, ticks in self._ticks.items()}
        busiest = sorted((name for name in used if used[name] > 0), key=lambda name: -used[name])
        self._watched = [_OWN_TASKS / name for name in busiest[:_MOST_WATCHED]]

    @property
    def any_runs(self) -> bool:
        """Whether one of them runs now, or could if a core were free."""
        return any(stat_of(path)[:1] == ["R"] for path in self._watched)


class Doing(StrEnum):
    """What the function's thread does at a moment."""

    ROWS = "rows"  # waits for rows of a feed
    DATA = "data"  # waits for a tf.data pipeline
    PEERS = "peers"  # waits for other nodes, in Python
    TENSORFLOW = "tensorflow"  # is within TensorFlow's own code
    TRACING = "tracing"  # has TensorFlow trace a function, which happens once
    PYTHON = "python"  # anything else


class _Place(StrEnum):
    """What is known of a piece of code by its file."""

    WAITING = "waiting"
    FEED = "feed"
    LOCK_STEP = "lock-step"
    ITERATOR = "iterator"
    TENSORFLOW = "tensorflow"
    TRACING = "tracing"
    LIBRARY = "library"
    OTHER = "other"


_OF_FILES = {
    threading.__file__: _Place.WAITING,
    "tfos_lab/node/lock_step.py": _Place.LOCK_STEP,
    "tensorflow/python/framework/func_graph.py": _Place.TRACING,
    "tensorflow/python/data/ops/iterator_ops.py": _Place.ITERATOR,
    "tensorflow/python/data/ops/multi_device_iterator_ops.py": _Place.ITERATOR,
}
# Between cells, an interactive node does nothing that would count.
_WAITS_FOR_CELLS = "tfos_lab/node/interactive.py"
_WAITS = {_Place.FEED: Doing.ROWS, _Place.LOCK_STEP: Doing.PEERS}


def what_it_does(frame: FrameType) -> Doing:
    """Return what a thread does whose innermost frame is given."""
    places = [_place_of(inner.f_code.co_filename) for inner in outwards(frame)]
    if _Place.TRACING in places:
        return Doing.TRACING
    if (waited := _waited_for(places)) is not None:
        return waited
    if places[0] in (_Place.TENSORFLOW, _Place.ITERATOR):
        return Doing.DATA if _Place.ITERATOR in places[:3] else Doing.TENSORFLOW
    return Doing.PYTHON


def awaited_by(frames: Iterable[FrameType]) -> Doing | None:
    """Return what threads that prepare data wait for: rows (or read them), peers, or None if nothing of ours."""
    places = [
        [_place_of(inner.f_code.co_filename) for inner in itertools.islice(outwards(frame), 6)] for frame in frames
    ]
    waits = {_waited_for(some) for some in places}
    if Doing.ROWS in waits or Doing.PEERS in waits:
        return Doing.ROWS if Doing.ROWS in waits else Doing.PEERS
    return Doing.ROWS if any(_Place.FEED in some for some in places) else None


def _waited_for(places: list[_Place]) -> Doing | None:
    """Return what is waited for, if the innermost code waits for a condition of ours."""
    if places[0] is not _Place.WAITING:
        return None
    return _WAITS.get(next((place for place in places if place is not _Place.WAITING), _Place.OTHER))


def where(frame: FrameType) -> str:
    """Return the innermost line of the function's own code, or of any code where there is none of its own."""
    own = next((inner for inner in outwards(frame) if _place_of(inner.f_code.co_filename) is _Place.OTHER), frame)
    name = own.f_code.co_qualname.rpartition("<locals>.")[2]
    file = sources.label(own.f_code.co_filename) or Path(own.f_code.co_filename).name
    return f"{file}, line {own.f_lineno}{'' if name == '<module>' else f', in {name}'}"


@functools.lru_cache(maxsize=10_000)
def _place_of(file: str) -> _Place:
    for ending, place in _OF_FILES.items():
        if file.endswith(ending):
            return place
    if "tfos_lab/node/feed/" in file:
        return _Place.FEED
    if f"{os.sep}tensorflow{os.sep}" in file:
        return _Place.TENSORFLOW
    is_generated = file.startswith("<") and sources.label(file) is None
    return _Place.LIBRARY if is_generated or sources.package_of(file) else _Place.OTHER
