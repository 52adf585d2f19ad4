"""What is installed in an environment: its packages, the files of those that an archive takes, and a digest of all."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import importlib.metadata
import os
import platform
import re
import sys
import sysconfig
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tfos_lab.core.environments import Environment, this_platform
from tfos_lab.driver.environment.sources import Sources, find_sources

# Changes with the layout of archives, so that older ones are not used again.
_FORMAT = "1"
_SEES_MORE = re.compile(r"^include-system-site-packages *= *true", re.MULTILINE | re.IGNORECASE)
# Executors have Spark; its Python files are taken along, its Java ones are not.
_ALWAYS_LEFT_OUT = ("pyspark/jars/*", "pyspark/bin/*", "pyspark/examples/*")


def normal_name(name: str) -> str:
    """Return the name of a distribution as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@dataclass(frozen=True)
class Inventory:
    """What is in the environment of this process, or of another interpreter's folder.

    Parameters
    ----------
    prefix : path
        The environment's folder.
    site_packages : path
        Where its packages are.
    exclude : collection of str
        Distributions to leave out, by name; ``*`` stands for anything.
    """

    prefix: Path
    site_packages: Path
    exclude: Collection[str] = ()

    @classmethod
    def of_this_python(cls, exclude: Collection[str] = ()) -> Inventory:
        """Return that of the environment in which this process runs."""
        return cls(Path(sys.prefix), Path(sysconfig.get_path("purelib")), tuple(exclude))

    def distributions(self) -> list[importlib.metadata.Distribution]:
        """Return all that are installed and not left out, by name."""
        found = {
            normal_name(one.metadata["Name"]): one
            for one in importlib.metadata.distributions(path=[str(self.site_packages)])
        }
        left_out = {name for pattern in self.exclude for name in fnmatch.filter(found, normal_name(pattern))}
        return [one for name, one in sorted(found.items()) if name not in left_out]

    def unknown(self) -> list[str]:
        """Return what is to be left out, and is not there."""
        everything = Inventory(self.prefix, self.site_packages).distributions()
        there = [normal_name(one.metadata["Name"]) for one in everything]
        return [name for name in self.exclude if not fnmatch.filter(there, normal_name(name))]

    def problems(self) -> list[str]:
        """Return why an archive of it would not work."""
        unknown = self.unknown()
        found = [f"exclude: {', '.join(unknown)} is not installed in {self.prefix}"] if unknown else []
        with contextlib.suppress(OSError):
            if _SEES_MORE.search((self.prefix / "pyvenv.cfg").read_text()):
                found.append(
                    f"{self.prefix} also sees packages of the Python below it, which an archive would lack: make it "
                    "without --system-site-packages"
                )
        return found

    def sources(self) -> Sources:
        """Return the editable packages; none of them is left out."""
        return find_sources(self.site_packages)

    def environment(self) -> Environment:
        """Return what an archive of it would hold; takes a tenth of a second."""
        digest = hashlib.sha256(f"{_FORMAT} {sys.version} {this_platform()}".encode())
        packages = {}
        for one in self.distributions():
            packages[normal_name(one.metadata["Name"])] = one.version
            digest.update(f"{one.metadata['Name']} {one.version} {one.read_text('RECORD')}".encode())
        for name, path in self.sources().files():
            stat = path.stat()
            digest.update(f"{name} {stat.st_size} {stat.st_mtime_ns}".encode())
        return Environment(
            digest=digest.hexdigest()[:16],
            python=platform.python_version(),
            platform=this_platform(),
            packages=packages,
            exclude=list(self.exclude),
        )

    def files(self) -> Iterator[tuple[str, Path]]:
        """Yield each file that is imported, with its path within site-packages."""
        sources = self.sources()
        left_out = {*self._files_left_out(), *sources.links}
        for folder, folders, names in os.walk(self.site_packages, followlinks=True):
            folders.sort()
            for name in sorted(names):
                path = Path(folder) / name
                relative = str(path.relative_to(self.site_packages))
                if path not in left_out and not any(fnmatch.fnmatch(relative, one) for one in _ALWAYS_LEFT_OUT):
                    yield relative, path
        yield from sources.files()

    def _files_left_out(self) -> Iterator[Path]:
        kept = {normal_name(one.metadata["Name"]) for one in self.distributions()}
        for one in importlib.metadata.distributions(path=[str(self.site_packages)]):
            if normal_name(one.metadata["Name"]) not in kept:
                yield from (self.site_packages / file for file in one.files or ())
