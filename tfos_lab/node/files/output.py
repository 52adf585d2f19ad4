"""The files of the function's output folder and working folder, which the driver fetches.

If the node sees the run folder, the function writes there and nothing is fetched. Otherwise it writes to a folder of
this host. Files that it has written by relative paths are in its working folder, and are always listed. Files are
listed while the function works, so that little is lost with a host, and when it has ended, however it ended. What the
driver does not take is kept on this host. The chief's event files are listed, too, if the driver does not see them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.core.paths import split_scheme
from tfos_lab.node.files.listed import FoundFile, ListedFolder, files_in
from tfos_lab.node.files.working_folder import WorkingFolder

# While the function works, files that have not changed for this long are fetched; the folder is searched as often.
_SETTLED_S = 2.0
# The function's own traffic has priority: a round is followed by a pause of four times its duration.
_REST = 4.0


class NodeOutput:
    """One node's output folder, and its ``working_folder``, in which the function starts."""

    def __init__(self, node: str, scratch: Path, send: Callable[[m.FromAgent], None]) -> None:
        self.working_folder = WorkingFolder(scratch)
        self._folder = scratch / "output"
        # On the same disk, also where the folder is a link.
        label = f"{scratch.name}-{secrets.token_hex(2)}-{node.replace(':', '-')}"
        self._kept_path = scratch.resolve().parent / "output" / label
        self._send = send
        self._listed = ListedFolder("output", send)
        self._event_files = _EventFiles(send)
        self._told: tuple[object, ...] | None = None
        # The files that the driver has, all of which were there at the time.
        self._taken: dict[str, FoundFile] | None = {}
        self._is_wanted = False
        self._is_shared = False
        self._is_open = False
        self._is_done = False
        self._next_round_at = self._round_began_at = 0.0

    @property
    def has_more(self) -> bool:
        """Whether there is, or may be, more to fetch."""
        return self._is_open and not self._is_done

    @property
    def last_taken_at(self) -> float:
        """When the driver last took something, by `time.monotonic`."""
        return self._listed.heard_at

    def prepare(self, start: m.Start) -> m.Start:
        """Choose the folder, and return ``start`` with its path for the function."""
        self._event_files.prepare(start)
        self._is_wanted = bool(start.output_dir)
        self._is_shared = self._is_wanted and is_shared(start.output_probe)
        if self._is_shared:
            self._folder = Path(start.output_dir)
        return msgspec.structs.replace(start, output_dir=str(self._folder))

    def look_for_work(self) -> None:
        """List files once the function has asked for its folder, which is made then, or written to its working folder.

        They are listed be there none: the driver waits for a lost node's files once it has a list.
        """
        if self._is_wanted and not self._is_open:
            has_asked = not self._is_shared and self._folder.exists()
            self._is_open = has_asked or bool(self.working_folder.files()[0])

    def handle(self, message: m.ToAgent) -> None:
        """Handle the driver's message about the files."""
        self._event_files.listed.handle(message)
        taken = self._listed.handle(message)
        if taken is None:
            return
        self._taken = None if taken.left_out else self._listed.files
        if self._listed.is_last:
            self._is_done = True
            self._send(m.OutputSettled(place=self._keep() if taken.left_out else ""))
        else:
            now = time.monotonic()
            self._next_round_at = now + max(_SETTLED_S, _REST * (now - self._round_began_at))

    def work(self) -> None:
        """List what the function has finished; called often while it works."""
        self._event_files.work()
        if not self._is_wanted or self._listed.is_last:
            return
        if self._listed.is_answered and time.monotonic() >= self._next_round_at:
            self._round_began_at = time.monotonic()
            self._next_round_at = self._round_began_at + _SETTLED_S
            self.look_for_work()
            if self._is_open:
                settled_ns = time.time_ns() - int(_SETTLED_S * 1e9)
                found, _ = self._found()
                told = tuple((file, file.changed_ns < settled_ns) for file in found.values())
                if told != self._told:  # else the driver knows how they are
                    self._told = told
                    self._listed.list(found.values(), settled_ns=settled_ns, place=str(self._kept_path))

    def settle(self) -> bool:
        """After the function's end, list what there is, and return whether the driver has it; called often."""
        if not self._event_files.settle():
            return False
        if not self._is_wanted:
            self._report_dropped()
        elif not self._listed.is_last:
            self.look_for_work()
        if not self.has_more:
            return True
        if not self._listed.is_last and self._listed.is_answered:
            found, links = self._found()
            self._listed.list(found.values(), last=True, links=links, place=str(self._kept_path))
        return self._is_done

    def _report_dropped(self) -> None:
        """Report what the function has written to its working folder, and nobody wants."""
        if not self._is_done:
            self._is_done = True
            sizes = [file.size for file in self.working_folder.files()[0].values()]
            if sizes:
                self._send(m.OutputSettled(dropped=len(sizes), dropped_bytes=sum(sizes)))

    def _found(self) -> tuple[dict[str, FoundFile], int]:
        """Return the files that the driver may have, by name, and the number of links, which it may not."""
        found, links = self.working_folder.files()
        if self._is_shared:
            return found, links
        written, linked = files_in(self._folder)
        return {**found, **written}, links + len(linked)

    def _keep(self) -> str:
        """Move the files to where they outlive the agent; return the new path."""
        path = self._kept_path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._is_shared or not self._folder.exists():
                path.mkdir(mode=0o700)
            else:
                self._folder.rename(path)
            self.working_folder.move_to(path)
        except OSError as error:
            return f"no place: it could not be kept ({error.strerror})"
        return str(path)

    def close(self) -> None:
        """Keep the files that the driver does not have; the agent's own folder is removed."""
        if self.has_more:
            self._is_done = True
            found, _ = self._found()
            if found != self._taken:
                self._keep()


def is_shared(probe: str) -> bool:
    """Whether this host sees the driver's folder, and can write to it."""
    with contextlib.suppress(OSError):
        return bool(probe) and Path(probe).exists() and os.access(Path(probe).parent, os.W_OK)
    return False


# ---- event files -----------------------------------------------------------------------------------------------------


# TensorBoard looks for new lines about as often.
_PERIOD_S = 2.0
# Less than the driver waits for a node that has ended; what is more stays where it is.
_PATIENCE_S = 5.0
# The search is bounded: a folder that many runs share may be large, and the agent has other work.
_SEARCH_S = 1.0
# Clocks of file servers differ from the host's.
_CLOCK_SKEW_S = 5.0


class _EventFiles:
    """The event files of a chief whose driver does not see their folder, and fetches what they grow by.

    After a restart, those of the earlier nodes are listed too, if this host sees them: an earlier chief may have been
    killed before they were fetched.
    """

    def __init__(self, send: Callable[[m.FromAgent], None]) -> None:
        self.listed = ListedFolder("events", send)
        self._folder: Path | None = None
        self._since_s = self._began_s = self._due_s = 0.0
        self._deadline_s: float | None = None

    def prepare(self, start: m.Start) -> None:
        """Take from the start message what the function is about to write to; older files belong to other runs."""
        if start.is_chief and not is_shared(start.events_probe):
            self._folder = Path(split_scheme(start.event_home)[2])
            self._began_s = time.time() - _CLOCK_SKEW_S
            self._since_s = self._began_s - start.age_s

    def work(self) -> None:
        """List what has grown, now and then; called often while the function runs."""
        if self.listed.is_answered and not self.listed.is_last and time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + _PERIOD_S
            self._list()

    def settle(self) -> bool:
        """List the rest, and return whether it is fetched, or has taken too long; called often after the end."""
        if self._deadline_s is None:
            self._deadline_s = time.monotonic() + _PATIENCE_S
        if self.listed.is_answered and not self.listed.is_last:
            self._list(last=True)
        return self.listed.is_answered or time.monotonic() >= self._deadline_s

    def _list(self, *, last: bool = False) -> None:
        if self._folder is None:
            return
        since_ns, began_ns = self._since_s * 1e9, self._began_s * 1e9
        found = files_in(self._folder, patience_s=_SEARCH_S)[0].values()
        # Those that have changed since the cluster began.
        files = [file for file in found if "tfevents" in file.path.name and file.size and file.changed_ns >= since_ns]
        # This function's own files first, the smallest before others: files of scalars are small.
        files.sort(key=lambda file: (file.changed_ns < began_ns, file.size))
        if files and (last or {file.name: file for file in files} != self.listed.files):
            self.listed.list(files, last=last)
