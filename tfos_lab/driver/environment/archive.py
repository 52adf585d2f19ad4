"""Writes an environment into an archive that works wherever it is unpacked.

A virtual environment finds itself by the file ``pyvenv.cfg`` beside its ``bin``; only the links to the Python below it
and the first lines of its scripts name places. The archive links to the Python that executors have, and its scripts
start the Python beside them.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tfos_lab.core.environments import MANIFEST, Environment
from tfos_lab.driver.environment.inventory import Inventory

# The first line of a script may hold 127 bytes and no relative path, so a shell finds the Python beside it.
_TRAMPOLINE = b"""#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")"/python "$0" "$@"
' '''
"""
# Archives are unpacked once per executor, and packed once: speed is worth more than the last tenth of the size.
_LEVEL = 1


def write_archive(target: Path, inventory: Inventory, environment: Environment, python: str) -> None:
    """Write an environment as ``.tar.gz``.

    Parameters
    ----------
    target : path
        The file; it is there only when it is complete.
    inventory, environment : Inventory, Environment
        What to write, and the text about it.
    python : str
        Path of the Python on the executors, below the packages.
    """
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with tarfile.open(partial, "w:gz", compresslevel=_LEVEL) as archive:
            for member, data in _small_files(inventory, environment, python):
                archive.addfile(member, io.BytesIO(data) if data is not None else None)
            _add_files(archive, inventory.files())
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)


def _add_files(archive: tarfile.TarFile, files: Iterable[tuple[str, Path]]) -> None:
    home = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    for name, path in files:
        # What a link leads to may be elsewhere: the file itself is taken.
        member = archive.gettarinfo(os.path.realpath(path), f"{home}/{name}")
        if member is None or not path.is_file():
            continue
        member.type, member.linkname = tarfile.REGTYPE, ""
        member.size = path.stat().st_size
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        with path.open("rb") as file:
            archive.addfile(member, file)


def _small_files(
    inventory: Inventory, environment: Environment, python: str
) -> Iterator[tuple[tarfile.TarInfo, bytes | None]]:
    """Yield what is made for the archive: the manifest first, links to Python, scripts."""
    yield _file(MANIFEST, environment.to_json().encode())
    home = f"home = {Path(python).parent}\ninclude-system-site-packages = false\nversion = {environment.python}\n"
    yield _file("pyvenv.cfg", home.encode())
    yield _link("bin/python", python)
    for name in ("python3", f"python{sys.version_info.major}.{sys.version_info.minor}"):
        yield _link(f"bin/{name}", "python")
    for script in sorted((inventory.prefix / "bin").glob("*")):
        if not script.name.startswith(("python", "activate", "Activate")) and script.is_file():
            data = relocated(script.read_bytes())
            if data is not None:
                yield _file(f"bin/{script.name}", data, mode=0o755)


def relocated(script: bytes) -> bytes | None:
    """Return a Python script that starts the Python beside it, or None if it is no Python script."""
    first, _, rest = script.partition(b"\n")
    if first.startswith(b"#!") and b"python" in first:
        return _TRAMPOLINE + rest
    if first == b"#!/bin/sh" and rest.startswith(b"'''exec' "):  # as pip writes it where the path is too long
        return _TRAMPOLINE + rest.split(b"\n", 2)[2]
    return None


def _file(name: str, data: bytes, mode: int = 0o644) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(data), mode, int(time.time())
    return member, data


def _link(name: str, to: str) -> tuple[tarfile.TarInfo, None]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mtime = tarfile.SYMTYPE, to, int(time.time())
    return member, None


def read_manifest(archive: Path) -> Environment:
    """Return what an archive holds, without unpacking it.

    Raises
    ------
    OSError
        If it cannot be opened.
    ValueError
        If it is no archive of ours.
    """
    try:
        with tarfile.open(archive, "r:*") as opened:
            member = opened.next()
            content = opened.extractfile(member) if member is not None and member.name == MANIFEST else None
            if content is not None:
                return Environment.from_json(content.read())
    except (tarfile.TarError, EOFError) as error:
        raise ValueError(f"{archive} is no archive: {error}") from error
    raise ValueError(f"{archive} was not made by tfos-lab pack")
