"""Which of this process's threads run at a moment: a process whose threads all sleep waits for something outside."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

# Of a hundred threads a few do all the work, and only those are looked at each time.
_MOST_WATCHED = 8
_OWN_TASKS = Path("/proc/self/task")


class BusyThreads:
    """Watches the threads that use the CPU; used by one thread, which is left out.

    Parameters
    ----------
    tasks : Path
        Where the kernel lists the threads; for tests.
    """

    def __init__(self, tasks: Path = _OWN_TASKS) -> None:
        self._tasks = tasks
        self._ticks: dict[str, int] = {}
        self._watched: list[Path] = []

    def look(self) -> None:
        """Find the threads that have used the CPU since the last call."""
        before, self._ticks = self._ticks, {}
        own = str(threading.get_native_id())
        for task in self._tasks.iterdir() if self._tasks.is_dir() else ():
            if task.name != own and (fields := _stat(task / "stat")):
                self._ticks[task.name] = int(fields[11]) + int(fields[12])
        used = {name: ticks - before.get(name, 0) for name, ticks in self._ticks.items()}
        busiest = sorted((name for name in used if used[name] > 0), key=lambda name: -used[name])
        self._watched = [self._tasks / name / "stat" for name in busiest[:_MOST_WATCHED]]

    @property
    def any_runs(self) -> bool:
        """Whether one of them runs now, or could if a core were free."""
        return any(_stat(path)[:1] == ["R"] for path in self._watched)


def _stat(path: Path) -> list[str]:
    with contextlib.suppress(OSError), path.open("rb", buffering=0) as file:
        return file.read(1024).decode(errors="replace").rpartition(")")[2].split()
    return []
