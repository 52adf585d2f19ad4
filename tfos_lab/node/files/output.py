"""Sends the files of the function's output folder and working folder to the driver.

If the node sees the run folder, the function writes there and nothing is sent. Otherwise it writes to a folder of this
host. Files that it has written by relative paths are in its working folder, and are always sent. Finished files are
sent while the function works, so that little is lost with a host; the rest is sent when it has ended, however it ended.
Files that cannot be sent are kept on this host.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tfos_lab import messages as m
from tfos_lab.node.files.found import FoundFile, files_in
from tfos_lab.node.files.sender import FileSender
from tfos_lab.node.files.working_folder import WorkingFolder

# While the function works, files that have not changed for this long are sent; the folder is searched as often.
_SETTLED_S = 2.0
# The function's own traffic has priority: a round is followed by a pause of four times its duration.
_REST = 4.0


@dataclass(frozen=True)
class Round:
    """What to do so that the driver has the files of the folder.

    Attributes
    ----------
    gone : list of str
        Names of files that the driver has to remove.
    wanted : list of FoundFile
        Files to send, in an order that never exceeds the limit.
    left_out : list of FoundFile
        Files beyond the limit.
    """

    gone: list[str]
    wanted: list[FoundFile]
    left_out: list[FoundFile]


def plan_round(found: Mapping[str, FoundFile], kept: Mapping[str, FoundFile], limit_bytes: int) -> Round:
    """Plan what to send: the newest files that fit into the limit, unless the driver has them unchanged.

    Parameters
    ----------
    found, kept : mapping of str to FoundFile
        The files in the folder, and those that the driver has.
    limit_bytes : int
        How much the driver takes.
    """
    chosen: dict[str, FoundFile] = {}
    room = limit_bytes
    for file in sorted(found.values(), key=lambda file: (-file.changed_ns, file.name)):
        if file.size <= room:
            room -= file.size
            chosen[file.name] = file

    def growth(file: FoundFile) -> int:
        return max(0, file.size - (kept[file.name].size if file.name in kept else 0))

    # Files that shrink make room for those that grow.
    return Round(
        gone=[name for name in kept if name not in chosen],
        wanted=sorted((file for file in chosen.values() if kept.get(file.name) != file), key=lambda f: growth(f) > 0),
        left_out=[file for file in found.values() if file.name not in chosen],
    )


class OutputSender:
    """One node's output folder and working folder.

    Parameters
    ----------
    rank, node : int, str
        The node.
    scratch : pathlib.Path
        The agent's own folder, which is removed with it.
    send : callable
        Sends a message to the driver.

    Attributes
    ----------
    working_folder : WorkingFolder
        The folder in which the function starts.
    """

    def __init__(self, rank: int, node: str, scratch: Path, send: Callable[[m.FromAgent], None]) -> None:
        self._rank = rank
        self.working_folder = WorkingFolder(scratch)
        self._folder = scratch / "output"
        # On the same disk, also where the folder is a link.
        self._kept_path = scratch.resolve().parent / "output" / f"{scratch.name}-{node.replace(':', '-')}"
        self._send = send
        self._sender = FileSender(rank, "output", send)
        self._limit_bytes = 0
        self._is_wanted = False
        self._is_shared = False
        self._is_open = False
        self._is_ending = False
        self._is_done = False
        self._next_round_at = self._round_began_at = 0.0
        self._left_out: list[FoundFile] = []

    @property
    def has_more(self) -> bool:
        """Whether there is, or may be, more to send."""
        return self._is_open and not self._is_done

    @property
    def last_taken_at(self) -> float:
        """When the driver last took something, by `time.monotonic`."""
        return self._sender.answered_at

    def prepare(self, start: m.Start) -> m.Start:
        """Choose the folder, and return ``start`` with its path for the function."""
        self._limit_bytes = start.output_limit_bytes
        self._is_wanted = bool(start.output_dir)
        self._is_shared = self._is_wanted and is_shared(start.output_probe)
        if self._is_shared:
            self._folder = Path(start.output_dir)
        return msgspec.structs.replace(start, output_dir=str(self._folder))

    def open(self) -> None:
        """Start to watch the folder: the function has asked for it."""
        if self._is_shared:
            self._send(m.OutputOpened(rank=self._rank))
        elif self._is_wanted:
            self._start_sending()

    def _start_sending(self) -> None:
        if not self._is_open:
            self._is_open = True
            self._send(m.OutputOpened(rank=self._rank, place=str(self._kept_path)))

    def look_for_work(self) -> None:
        """Start to send once the function has written to its working folder, for which it need not ask."""
        if self._is_wanted and not self._is_open and self.working_folder.files()[0]:
            self._start_sending()

    def handle(self, message: m.ToAgent) -> None:
        """Handle the driver's message about the files."""
        self._sender.handle(message)

    def work(self) -> None:
        """Send what the function has finished; called often while it works."""
        if not self._is_wanted or self._is_ending or self._is_done:
            return
        if not self._sender.is_idle:
            self._sender.send_due()
        elif time.monotonic() >= self._next_round_at:
            self._round_began_at = time.monotonic()
            self.look_for_work()
            if self._is_open:
                self._begin_round(settled_ns=time.time_ns() - int(_SETTLED_S * 1e9))
        else:
            return
        if self._sender.is_idle:
            now = time.monotonic()
            self._next_round_at = now + max(_SETTLED_S, _REST * (now - self._round_began_at))

    def settle(self) -> bool:
        """After the function's end, send the rest, and return whether that is done; called often."""
        if not self._is_wanted:
            self._report_dropped()
        elif not self._is_ending:
            self.look_for_work()
        if not self.has_more:
            return True
        self._sender.send_due()
        if not self._sender.is_idle:
            return False
        if not self._is_ending:
            self._is_ending = True
            self._sender.refused.clear()
            self._begin_round()
            return False
        self._end()
        return True

    def _report_dropped(self) -> None:
        """Report what the function has written to its working folder, and nobody wants."""
        if not self._is_done:
            self._is_done = True
            sizes = [file.size for file in self.working_folder.files()[0].values()]
            if sizes:
                self._send(m.OutputSent(rank=self._rank, left_out=len(sizes), left_out_bytes=sum(sizes)))

    def _found(self) -> tuple[dict[str, FoundFile], int]:
        """Return the files that are to be sent, by name, and the number of links, which are not."""
        found, links = self.working_folder.files()
        if self._is_shared:
            return found, links
        written, linked = files_in(self._folder)
        return {**found, **written}, links + len(linked)

    def _begin_round(self, settled_ns: int | None = None) -> None:
        found, _ = self._found()
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
            self._sender.send_due()

    def _end(self) -> None:
        """Report what was sent and what was not."""
        self._is_done = True
        found, links = self._found()
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
        """Move the files to where they outlive the agent; return the new path."""
        for number in itertools.count():
            path = self._kept_path.with_name(f"{self._kept_path.name}-{number}") if number else self._kept_path
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                if self._is_shared or not self._folder.exists():
                    path.mkdir(mode=0o700)
                else:
                    self._folder.rename(path)
                self.working_folder.move_to(path)
            except FileExistsError:
                continue
            except OSError as error:
                if path.exists():
                    continue
                return f"no place: it could not be kept ({error.strerror})"
            return str(path)
        raise AssertionError

    def close(self) -> None:
        """Keep the files that the driver does not have; the agent's own folder is removed."""
        if self.has_more:
            self._is_done = True
            found, _ = self._found()
            if any(self._sender.kept.get(name) != file for name, file in found.items()):
                self._keep()


def is_shared(probe: str) -> bool:
    """Whether this host sees the driver's folder, and can write to it."""
    with contextlib.suppress(OSError):
        return bool(probe) and Path(probe).exists() and os.access(Path(probe).parent, os.W_OK)
    return False
