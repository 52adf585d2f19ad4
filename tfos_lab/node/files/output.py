"""What the function writes to its output folder, on its way to the driver.

Where the node sees the run's own folder, the function writes there, and nothing is to be done. Otherwise it writes to a
folder of this host. What it has finished there is brought while it works, so that little is lost with a host; the rest
when it has ended, however it ended. What cannot be brought is kept on this host.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

import msgspec

from tfos_lab import messages as m
from tfos_lab.core.paths import OWN_MARK
from tfos_lab.node.files.sender import FileSender, FoundFile

# While the function works: what has not changed for so long is brought, and looked for as often.
_SETTLED_S = 2.0
# The function's own traffic goes first: bringing takes a fifth of the time.
_REST = 4.0


@dataclass(frozen=True)
class Round:
    """What is to be done so that the driver has what the folder has.

    Attributes
    ----------
    gone : list of str
        Names of files that the driver has and should not.
    wanted : list of FoundFile
        Files that it should have, in an order in which they never exceed the limit.
    left_out : list of FoundFile
        Files that are too much.
    """

    gone: list[str]
    wanted: list[FoundFile]
    left_out: list[FoundFile]


def plan_round(found: Mapping[str, FoundFile], kept: Mapping[str, FoundFile], limit_bytes: int) -> Round:
    """Say what to bring: the newest files, as many as there is room for, if the driver does not have them as they are.

    Parameters
    ----------
    found, kept : mapping of str to FoundFile
        What is in the folder; what the driver has.
    limit_bytes : int
        The most that it takes.
    """
    chosen: dict[str, FoundFile] = {}
    room = limit_bytes
    for file in sorted(found.values(), key=lambda file: (-file.changed_ns, file.name)):
        if file.size <= room:
            room -= file.size
            chosen[file.name] = file

    def growth(file: FoundFile) -> int:
        return max(0, file.size - (kept[file.name].size if file.name in kept else 0))

    # Those that shrink make room for those that grow.
    return Round(
        gone=[name for name in kept if name not in chosen],
        wanted=sorted((file for file in chosen.values() if kept.get(file.name) != file), key=lambda f: growth(f) > 0),
        left_out=[file for file in found.values() if file.name not in chosen],
    )


class OutputFiles:
    """One node's output folder.

    Parameters
    ----------
    rank, node : int, str
        Whose.
    scratch : pathlib.Path
        The agent's own folder, which goes with it.
    send : callable
        Says something to the driver.
    """

    def __init__(self, rank: int, node: str, scratch: Path, send: Callable[[m.FromAgent], None]) -> None:
        self._rank = rank
        self._folder = scratch / "output"
        self._place = scratch.parent / "output" / f"{scratch.name}-{node.replace(':', '-')}"
        self._send = send
        self._sender = FileSender(rank, "output", send)
        self._limit_bytes = 0
        self._is_home = False
        self._is_wanted = False
        self._is_open = False
        self._is_ending = False
        self._over = False
        self._next_round_at = self._round_began_at = 0.0
        self._left_out: list[FoundFile] = []

    @property
    def is_coming(self) -> bool:
        """Whether there is, or may be, more to bring."""
        return self._is_open and not self._over

    @property
    def moved_at(self) -> float:
        """When the driver last took something, by `time.monotonic`."""
        return self._sender.heard_at

    def prepare(self, start: m.Start) -> m.Start:
        """Choose the folder, and return the start that tells the function of it."""
        self._limit_bytes = start.output_limit_bytes
        self._is_home = bool(start.output_dir) and _is_ours(start.output_probe)
        self._is_wanted = bool(start.output_dir) and not self._is_home
        if self._is_home:
            self._folder = Path(start.output_dir)
        return msgspec.structs.replace(start, output_dir=str(self._folder))

    def open(self) -> None:
        """The function has asked for its folder."""
        if self._is_home or self._is_wanted:
            self._is_open = self._is_wanted
            self._send(m.OutputOpened(rank=self._rank, place=str(self._place) if self._is_wanted else ""))

    def handle(self, message: m.ToAgent) -> None:
        """Take in what the driver says about the files."""
        self._sender.handle(message)

    def work(self) -> None:
        """Bring what the function has finished; called often while it works."""
        if not self.is_coming or self._is_ending:
            return
        if not self._sender.is_idle:
            self._sender.go_on()
        elif time.monotonic() >= self._next_round_at:
            self._round_began_at = time.monotonic()
            self._begin_round(settled_ns=time.time_ns() - int(_SETTLED_S * 1e9))
        else:
            return
        if self._sender.is_idle:
            now = time.monotonic()
            self._next_round_at = now + max(_SETTLED_S, _REST * (now - self._round_began_at))

    def settle(self) -> bool:
        """The function is gone: bring the rest, and return whether that is over; called often."""
        if not self.is_coming:
            return True
        self._sender.go_on()
        if not self._sender.is_idle:
            return False
        if not self._is_ending:
            self._is_ending = True
            self._sender.refused.clear()
            self._begin_round()
            return False
        self._end()
        return True

    def _begin_round(self, settled_ns: int | None = None) -> None:
        found, _ = _files_in(self._folder)
        plan = plan_round(found, self._sender.kept, self._limit_bytes)
        self._left_out = plan.left_out
        wanted = [file for file in plan.wanted if settled_ns is None or file.changed_ns < settled_ns]
        wanted = [file for file in wanted if file not in self._sender.refused]
        for name in plan.gone:
            del self._sender.kept[name]
        if plan.gone:
            self._send(m.OutputGone(rank=self._rank, names=plan.gone))
        if wanted:
            sizes = [file.size for file in wanted]
            self._send(m.OutputComes(rank=self._rank, files=len(sizes), size_bytes=sum(sizes)))
            self._sender.add(wanted)
            self._sender.go_on()

    def _end(self) -> None:
        """Say how it went."""
        self._over = True
        found, links = _files_in(self._folder)
        left = [file.size for file in found.values() if self._sender.kept.get(file.name) != file]
        problems = [why for file, why in self._sender.refused.items() if file not in self._left_out]
        self._send(
            m.OutputSent(
                rank=self._rank,
                left_out=len(left),
                left_out_bytes=sum(left),
                place=self._keep() if left else "",
                problem=problems[0] if problems else "",
                links=links,
            )
        )

    def _keep(self) -> str:
        """Put the folder where it outlives the agent; return where that is."""
        for number in itertools.count():
            place = self._place.with_name(f"{self._place.name}-{number}") if number else self._place
            try:
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._folder.rename(place)
            except FileExistsError:
                continue
            except OSError as error:
                if place.exists():
                    continue
                return f"no place: it could not be kept ({error.strerror})"
            return str(place)
        raise AssertionError

    def close(self) -> None:
        """Keep what the driver did not take; the agent's own folder goes with it."""
        if self.is_coming:
            self._over = True
            found, _ = _files_in(self._folder)
            if any(self._sender.kept.get(name) != file for name, file in found.items()):
                self._keep()


def _is_ours(probe: str) -> bool:
    """Whether the driver's folder is seen from here, and can be written to."""
    with contextlib.suppress(OSError):
        return bool(probe) and Path(probe).exists() and os.access(Path(probe).parent, os.W_OK)
    return False


def _files_in(folder: Path) -> tuple[dict[str, FoundFile], int]:
    """Return the regular files below a folder, and how many symbolic links there are, which nobody follows."""
    found: dict[str, FoundFile] = {}
    links = 0
    for place, folders, names in os.walk(folder):
        links += sum(os.path.islink(os.path.join(place, name)) for name in folders)  # noqa: PTH114, PTH118 - may be many
        for name in names:
            path = Path(place) / name
            with contextlib.suppress(OSError, UnicodeEncodeError):
                stat = path.lstat()
                relative = path.relative_to(folder).as_posix()
                relative.encode()  # what is no text cannot be named to the driver
                links += path.is_symlink()
                if S_ISREG(stat.st_mode) and OWN_MARK not in relative:
                    found[relative] = FoundFile(relative, path, stat.st_size, stat.st_mtime_ns)
    return found, links
