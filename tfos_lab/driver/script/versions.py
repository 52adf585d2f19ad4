"""The kept output of a script's runs: ``version-0001``, ``version-0002``, … and ``latest``, in one folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from tfos_lab.core.options import is_int
from tfos_lab.core.paths import is_local, split_scheme
from tfos_lab.errors import ConfigError

LATEST = "latest"
_NAME = re.compile(r"version-(\d{4,})")


class Versions:
    """A folder of versions; several processes may add to it.

    Parameters
    ----------
    folder : path
        The folder, which is made if need be.
    keep : int, optional
        How many of the newest to keep; all by default.

    Raises
    ------
    ConfigError
        If the folder cannot be made here, or ``keep`` is no number of versions.
    """

    def __init__(self, folder: str | os.PathLike[str], keep: int | None = None) -> None:
        if keep is not None and (not is_int(keep) or keep < 1):
            raise ConfigError([f"keep_versions={keep!r}: a whole number from 1 on is needed, or None to keep all"])
        address = os.fspath(folder)
        if not is_local(address):
            raise ConfigError([f"output_dir={address!r}: versions are kept in a folder of this machine; copy them on"])
        self.folder, self._keep = Path(split_scheme(address)[2]).expanduser().absolute(), keep
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError([f"output_dir={address!r}: it cannot be made ({error.strerror})"]) from None

    def add(self, output: Path) -> Path:
        """Move a folder here as the next version, and remove those that are too old; a link stays in its place.

        Raises
        ------
        OSError
            If it cannot be moved; what was there is still there.
        """
        with self._locked():
            there = {
                int(found[1]): path
                for path in self.folder.iterdir()
                if (found := _NAME.fullmatch(path.name)) and path.is_dir()
            }
            version = self.folder / f"version-{max(there, default=0) + 1:04d}"
            partial = self.folder / f".{version.name}"
            shutil.rmtree(partial, ignore_errors=True)
            shutil.move(output, partial)
            partial.rename(version)
            with contextlib.suppress(OSError):  # a file system without links
                output.symlink_to(version, target_is_directory=True)
            self._point_at(version)
            for old in sorted(there, reverse=True)[self._keep - 1 :] if self._keep else []:
                shutil.rmtree(there[old], ignore_errors=True)
            return version

    def _point_at(self, version: Path) -> None:
        """Let ``latest`` mean a version; whoever reads it sees the old one or the new one."""
        partial = self.folder / f".{LATEST}"
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
            partial.symlink_to(version.name, target_is_directory=True)
            partial.replace(self.folder / LATEST)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
