"""The notebook's Python environment as an archive for executors that have Python and nothing else.

A virtual environment finds itself by the file ``pyvenv.cfg`` beside its ``bin``; only the links to the Python below it
and the first lines of its scripts name places. The archive links to the Python that executors have, and its scripts
start the Python beside them. A conda environment is packed by conda-pack. What has been packed before is used again.

Editable packages lie elsewhere and are not taken: what a function imports of them travels with the function.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import importlib.metadata
import importlib.util
import io
import os
import platform
import re
import shutil
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tfos_lab.core.package_versions import MANIFEST, Environment
from tfos_lab.errors import ConfigError

# The folder into which Spark unpacks it, within the working folder of an executor.
ALIAS = "environment"
_KEPT = 3
# Changes with the layout of archives, so that older ones are not used again.
_FORMAT = "2"
_SEES_MORE = re.compile(r"^include-system-site-packages *= *true", re.MULTILINE | re.IGNORECASE)
# Executors have Spark; its Python files are taken along, its Java ones are not.
_ALWAYS_LEFT_OUT = ("pyspark/jars/*", "pyspark/bin/*", "pyspark/examples/*")
# The first line of a script may hold 127 bytes and no relative path, so a shell finds the Python beside it.
_TRAMPOLINE = b"""#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")"/python "$0" "$@"
' '''
"""
# Archives are unpacked once per executor, and packed once: speed is worth more than the last tenth of the size.
_LEVEL = 1


# ---- what there is --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inventory:
    """What is in the environment of this process, or of another interpreter's folder.

    ``exclude`` names distributions to leave out; ``*`` stands for anything.
    """

    prefix: Path
    site_packages: Path
    exclude: Collection[str] = ()

    @classmethod
    def of_this_python(cls, exclude: Collection[str] = ()) -> Inventory:
        """Return that of the environment in which this process runs."""
        return cls(Path(sys.prefix), Path(sysconfig.get_path("purelib")), tuple(exclude))

    def problems(self) -> list[str]:
        """Return why an archive of it would not work."""
        there = [_name_of(one) for one in self._installed()]
        unknown = [name for name in self.exclude if not fnmatch.filter(there, _normal(name))]
        found = [f"exclude: {', '.join(unknown)} is not installed in {self.prefix}"] if unknown else []
        with contextlib.suppress(OSError):
            if _SEES_MORE.search((self.prefix / "pyvenv.cfg").read_text()):
                found.append(
                    f"{self.prefix} also sees packages of the Python below it, which an archive would lack: make it "
                    "without --system-site-packages"
                )
        return found

    def environment(self) -> Environment:
        """Return what an archive of it would hold; takes a tenth of a second."""
        digest = hashlib.sha256(f"{_FORMAT} {sys.version} {sysconfig.get_platform()}".encode())
        kept = {_name_of(one): one for one in self._installed() if not self._is_left_out(one)}
        for name, one in sorted(kept.items()):
            digest.update(f"{name} {one.version} {one.read_text('RECORD')}".encode())
        return Environment(
            digest=digest.hexdigest()[:16],
            python=platform.python_version(),
            platform=sysconfig.get_platform(),
            packages={name: one.version for name, one in sorted(kept.items())},
            exclude=list(self.exclude),
        )

    def files(self) -> Iterator[tuple[str, Path]]:
        """Yield each file that is imported, with its path within site-packages."""
        gone = (one for one in self._installed() if self._is_left_out(one))
        left_out = {self.site_packages / file for one in gone for file in one.files or ()}
        for folder, folders, names in os.walk(self.site_packages, followlinks=True):
            folders.sort()
            for name in sorted(names):
                path = Path(folder) / name
                relative = str(path.relative_to(self.site_packages))
                if path not in left_out and not any(fnmatch.fnmatch(relative, one) for one in _ALWAYS_LEFT_OUT):
                    yield relative, path

    def _installed(self) -> Iterator[importlib.metadata.Distribution]:
        return iter(importlib.metadata.distributions(path=[str(self.site_packages)]))

    def _is_left_out(self, one: importlib.metadata.Distribution) -> bool:
        return any(fnmatch.fnmatch(_name_of(one), _normal(pattern)) for pattern in self.exclude)


def _name_of(one: importlib.metadata.Distribution) -> str:
    return _normal(one.metadata["Name"])


def _normal(name: str) -> str:
    """Return the name of a distribution as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


# ---- packing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packed:
    """An archive of an environment.

    Attributes
    ----------
    path : Path
        The archive.
    environment : Environment
        What it holds.
    seconds : float or None
        How long it took to pack; None if it was there already.
    """

    path: Path
    environment: Environment
    seconds: float | None

    @property
    def conf(self) -> dict[str, str]:
        """Spark's settings that have executors use it."""
        return {"spark.archives": f"{self.path}#{ALIAS}", "spark.pyspark.python": f"./{ALIAS}/bin/python"}

    def describe(self) -> str:
        """Return what was packed, and the lines that use it, for a notebook and for spark-submit."""
        size = self.path.stat().st_size / 1e6
        how = "packed before" if self.seconds is None else f"packed in {self.seconds:.0f} s"
        python = self.conf["spark.pyspark.python"]
        return "\n".join(
            [
                f"{self.path} ({size:,.0f} MB, packages: {len(self.environment.packages)}, {how})",
                "",
                "In a notebook or program, before the session starts:",
                "",
                *(f'    .config("{name}", "{value}")' for name, value in self.conf.items()),
                "",
                "On YARN, so that the executors of a host share what is unpacked, instead of spark.archives:",
                "",
                f'    .config("spark.yarn.dist.archives", "{self.conf["spark.archives"]}")',
                "",
                "With spark-submit:",
                "",
                f"    PYSPARK_DRIVER_PYTHON={sys.executable} PYSPARK_PYTHON={python} \\",
                f"    spark-submit --archives {self.conf['spark.archives']} …",
            ]
        )


def pack(
    output: str | os.PathLike[str] | None = None,
    *,
    exclude: Collection[str] = (),
    python: str | None = None,
) -> Packed:
    """Pack the environment of this process as a relocatable ``.tar.gz``.

    Parameters
    ----------
    output : path, optional
        The file to write; by default one in ``~/.cache/tfos_lab/environments``, which is used again for as long as the
        same packages are installed.
    exclude : collection of str
        Distributions that executors need not have, such as ``["jupyterlab", "playwright"]``.
    python : str, optional
        Path of the Python of the executors; they have it where this machine has it, by default.

    Returns
    -------
    Packed
        The archive, and Spark's settings that use it.

    Raises
    ------
    ConfigError
        If the file cannot be written, a package to leave out is not there, or the environment cannot be packed.
    """
    target = Path(output).absolute() if output is not None else None
    inventory = Inventory.of_this_python(exclude)
    if problems := [*_problems_of(target), *inventory.problems()]:
        raise ConfigError(problems)
    environment = inventory.environment()
    # By default, the Python below this virtual environment.
    python = python or os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    key = hashlib.sha256(f"{environment.digest} {inventory.prefix} {python}".encode()).hexdigest()[:16]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cached = caches / "tfos_lab" / "environments" / f"{inventory.prefix.name.strip('.')}-{key}.tar.gz"
    began = time.monotonic()
    seconds = None
    if not cached.exists():
        cached.parent.mkdir(parents=True, exist_ok=True)
        partial = cached.with_name(f".{cached.name}.{os.getpid()}")
        try:
            if (inventory.prefix / "conda-meta").is_dir():
                _write_conda(partial, inventory, environment)
            else:
                _write(partial, inventory, environment, python)
            partial.rename(cached)
        finally:
            partial.unlink(missing_ok=True)
        seconds = time.monotonic() - began
        # Each, and what a killed process has left of one, has the size of an environment, so that only a few stay.
        archives = sorted(cached.parent.glob("*.tar.gz*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in archives[_KEPT:]:
            old.unlink(missing_ok=True)
    cached.touch()
    if target is not None:
        shutil.copyfile(cached, target)
    return Packed(target or cached, environment, seconds)


def _problems_of(target: Path | None) -> list[str]:
    if target is not None and target.is_dir():
        return [f"output: {target} is a folder; name a file, such as {target / 'environment.tar.gz'}"]
    if target is not None and not target.parent.is_dir():
        return [f"output: there is no folder {target.parent}"]
    if target is not None and not target.name.endswith((".tar.gz", ".tgz")):
        name = target.with_name(f"{target.name.partition('.')[0]}.tar.gz")
        return [f"output: {target}: Spark unpacks what ends in .tar.gz; name it such as {name}"]
    return []


def _write(target: Path, inventory: Inventory, environment: Environment, python: str) -> None:
    """Write a virtual environment: what is made for the archive, the manifest first, and the packages' files."""
    with tarfile.open(target, "w:gz", compresslevel=_LEVEL) as archive:

        def add(name: str, data: bytes = b"", *, mode: int = 0o644, link: str = "") -> None:
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(data), mode, int(time.time())
            if link:
                member.type, member.linkname = tarfile.SYMTYPE, link
            archive.addfile(member, io.BytesIO(data))

        name = f"python{sys.version_info.major}.{sys.version_info.minor}"
        add(MANIFEST, environment.to_json().encode())
        home = f"home = {Path(python).parent}\ninclude-system-site-packages = false\nversion = {environment.python}\n"
        add("pyvenv.cfg", home.encode())
        add("bin/python", link=python)
        add("bin/python3", link="python")
        add(f"bin/{name}", link="python")
        for script in sorted((inventory.prefix / "bin").glob("*")):
            is_python = script.name.startswith(("python", "activate", "Activate")) or not script.is_file()
            if not is_python and (relocated := _relocated(script.read_bytes())):
                add(f"bin/{script.name}", relocated, mode=0o755)
        for file, path in inventory.files():
            # What a link leads to may be elsewhere: the file itself is taken.
            member = archive.gettarinfo(os.path.realpath(path), f"lib/{name}/site-packages/{file}")
            if member is not None and path.is_file():
                member.type, member.linkname, member.size = tarfile.REGTYPE, "", path.stat().st_size
                member.uid, member.gid, member.uname, member.gname = 0, 0, "", ""
                with path.open("rb") as content:
                    archive.addfile(member, content)


def _relocated(script: bytes) -> bytes | None:
    """Return a Python script that starts the Python beside it, or None if it is no Python script."""
    first, _, rest = script.partition(b"\n")
    if first.startswith(b"#!") and b"python" in first:
        return _TRAMPOLINE + rest
    if first == b"#!/bin/sh" and rest.startswith(b"'''exec' "):  # as pip writes it where the path is too long
        return _TRAMPOLINE + rest.split(b"\n", 2)[2]
    return None


def _write_conda(target: Path, inventory: Inventory, environment: Environment) -> None:
    """Write a conda environment; raises ConfigError if conda-pack is not installed, or refuses it."""
    if inventory.exclude:
        raise ConfigError(["exclude: conda-pack packs a conda environment as a whole; make a smaller one to pack"])
    if importlib.util.find_spec("conda_pack") is None:
        needed = "is a conda environment, which is packed with conda-pack: pip install 'tfos_lab[pack]'"
        raise ConfigError([f"{inventory.prefix} {needed}"])
    from conda_pack import CondaPackException
    from conda_pack.core import CondaEnv, File

    with tempfile.TemporaryDirectory() as folder:
        manifest = Path(folder) / MANIFEST
        manifest.write_text(environment.to_json())
        try:
            found = CondaEnv.from_prefix(str(inventory.prefix), ignore_editable_packages=True)
            files = [File(str(manifest), MANIFEST, is_conda=False, file_mode=None), *found.files]
            CondaEnv(found.prefix, files).pack(output=str(target), format="tar.gz", compress_level=_LEVEL, force=True)
        except CondaPackException as error:
            raise ConfigError([f"conda-pack cannot pack {inventory.prefix}: {error}"]) from error


# ---- archives that are there ----------------------------------------------------------------------------------------


def read_manifest(archive: Path) -> Environment:
    """Return what an archive holds, without unpacking it; raises ValueError if it is none of ours."""
    try:
        with tarfile.open(archive, "r:*") as opened:
            member = opened.next()
            content = opened.extractfile(member) if member is not None and member.name == MANIFEST else None
            if content is not None:
                return Environment.from_json(content.read())
    except (tarfile.TarError, EOFError) as error:
        raise ValueError(f"{archive} is no archive: {error}") from error
    raise ValueError(f"{archive} was not made by tfos-lab pack")
