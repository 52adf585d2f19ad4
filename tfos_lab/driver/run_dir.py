"""The folder of one run on this machine: the only module that knows what lies where in it.

::

    runs/mnist-20260101-120000-1f2e/
        run.json         what the run was and how it went; see `tfos_lab.driver.record.format`
        chief-0.log      one whole log for each node
        events/          event files for TensorBoard, unless ``log_dir`` names another folder of this machine
        output/          what the nodes wrote to ``ctx.output_dir``
        shown/           pictures and tables of ``ctx.show``
        results/         large results that nobody has looked at yet
        checkpoint-0/    how far Spark has read the first stream
        backup-<id>/     what a restart continues from, unless ``log_dir`` names another folder
        run-3/           the same of one of several independent runs
        notes.json       tags and a note that the user has given it
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import secrets
import socket
from pathlib import Path

from tfos_lab.core.paths import is_local
from tfos_lab.errors import ConfigError
from tfos_lab.texts import encodable


class RunDir:
    """The folder of one run, which exists; ``log_dir`` is where the user wants event files and backups.

    That is another folder, or an address such as ``"gs://bucket/logs"``. Nodes write event files to `event_home`, which
    TensorBoard shows: that folder, or `events` if it is remote. All nodes must see `backup_home`.
    """

    def __init__(self, path: Path, log_dir: str | None = None, *, run_id: str = "") -> None:
        self.path = path
        self.id = run_id or path.name
        self.events = path / "events"
        self.output = path / "output"
        self.record = path / "run.json"
        self.notes = path / "notes.json"
        self.log_dir = log_dir or str(self.events)
        self.event_home = self.log_dir if is_local(self.log_dir) else str(self.events)
        self.backup_home = log_dir or str(path)

    @classmethod
    def make(cls, name: str, log_dir: str | None = None) -> RunDir:
        """Make the folder of a new run.

        It is below ``$TFOS_LAB_RUNS``, by default ``runs/`` in the working directory, or in the user's cache where that
        folder cannot be written, or ConfigError is raised. Only the user can open it: logs and records show code,
        data and paths.
        """
        require_working_dir()  # nodes get its name
        bases = run_bases()
        label = "".join(char if char.isalnum() or char in "-_" else "-" for char in name)[:40]
        for base in bases:
            with contextlib.suppress(OSError):
                base.mkdir(parents=True, exist_ok=True)
                return cls(_new_folder(base, label), log_dir)
        here, cache = bases
        advice = "name a folder of your own with the environment variable TFOS_LAB_RUNS"
        raise ConfigError([f"no run folder can be made in {here} or {cache} on {socket.gethostname()}: {advice}"])

    def make_part(self, name: str) -> RunDir:
        """Make the folder of one of several independent runs within this one; it may be there already."""
        folder = self.path / f"run-{name}"
        folder.mkdir(mode=0o700, exist_ok=True)
        return RunDir(folder, run_id=f"{self.id}.{name}")

    @property
    def is_part(self) -> bool:
        """Whether it is the folder of one of several independent runs."""
        return self.id != self.path.name

    @property
    def may_hold_run(self) -> bool:
        """Whether there is a ``run.json``, or cannot be seen: the folder is another user's."""
        try:
            return self.record.exists()
        except PermissionError:
            return True

    def log(self, node: str) -> Path:
        """Return the log file of a node, such as ``"worker:0"``."""
        return self.path / f"{_file_name(node)}.log"

    def output_of(self, node: str) -> Path:
        """Return where the output of a node other than the chief goes."""
        return self.output / _file_name(node)

    def partial_output(self, rank: int) -> Path:
        """Return the file that holds what has arrived of the output file that a node is sending."""
        return self.path / f".output-{rank}.part"

    def result(self, node: str) -> Path:
        """Return the file with a node's result, if that was large and nobody has looked at it."""
        return self.path / "results" / _file_name(node)

    def checkpoint(self, stream: int) -> str:
        """Return the address of the folder in which Spark records how far it has read a stream."""
        return (self.path / f"checkpoint-{stream}").as_uri()

    @property
    def backup(self) -> str:
        """The folder in which the nodes keep what a restart continues from."""
        return f"{self.backup_home.rstrip('/')}/backup-{self.id}"

    def replace(self, file: Path, data: bytes) -> None:
        """Replace `record` or `notes`, readable by the user only; a reader sees the old file or the new one."""
        partial = self.path / f".{file.name}.part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(partial, flags, 0o600), "wb") as opened:
            opened.write(data)
        partial.replace(file)


def run_bases() -> list[Path]:
    """Return where runs are made, the first choice first: ``runs/`` here, and the user's cache."""
    asked = Path(os.environ.get("TFOS_LAB_RUNS", "runs"))
    here = asked if asked.is_absolute() else require_working_dir() / asked
    return [here, Path.home() / ".cache" / "tfos_lab" / "runs"]


def require_working_dir() -> Path:
    """Return the working folder; raises ConfigError where it is gone, or its name cannot be sent to nodes."""
    try:
        folder = Path.cwd()
        str(folder).encode()
    except FileNotFoundError:
        why = "the working folder is gone, removed or renamed: go to one that is there, with os.chdir(...)"
    except UnicodeEncodeError:
        why = f"the name of the working folder is no UTF-8, {encodable(str(folder))}: rename it, or go to another"
    else:
        return folder
    raise ConfigError([why])


def existing_part(folder: Path) -> Path:
    """Return the folder itself, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def make_probe(folder: Path) -> Path:
    """Make an empty file of a name that nobody can guess: a node that finds it sees this very folder.

    It is in the part of the folder that exists: whoever writes there makes the rest.
    """
    probe = existing_part(folder) / f".home-{secrets.token_hex(16)}"
    with contextlib.suppress(OSError):  # no node will find it
        probe.touch(mode=0o600)
    return probe


def parts_of(folder: Path) -> list[Path]:
    """Return the folders of independent runs within a run's folder, or none."""
    return sorted(folder.glob("run-*"), key=lambda path: [(len(part), part) for part in path.name.split(".")])


def _new_folder(base: Path, label: str) -> Path:
    while True:
        folder = base / f"{label}-{dt.datetime.now().astimezone():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        with contextlib.suppress(FileExistsError):  # a run that began in the same second may have the same name
            folder.mkdir(mode=0o700)
            return folder


def _file_name(node: str) -> str:
    return node.replace(":", "-")
