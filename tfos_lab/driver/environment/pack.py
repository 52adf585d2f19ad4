"""Packs the environment of this process for ``spark.archives``; what has been packed before is used again."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tfos_lab.core.environments import MANIFEST, Environment
from tfos_lab.driver.environment.archive import write_archive
from tfos_lab.driver.environment.inventory import Inventory
from tfos_lab.errors import ConfigError

# The folder into which Spark unpacks it, within the working folder of an executor.
ALIAS = "environment"
_KEPT = 3


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
    python = python or base_python()
    cached = cache_folder() / f"{_key(environment, inventory, python)}.tar.gz"
    began = time.monotonic()
    seconds = None
    if not cached.exists():
        cached.parent.mkdir(parents=True, exist_ok=True)
        if is_conda(inventory.prefix):
            write_conda_archive(cached, inventory, environment)
        else:
            write_archive(cached, inventory, environment, python)
        seconds = time.monotonic() - began
        _forget_old(cached)
    cached.touch()
    if target is not None:
        shutil.copyfile(cached, target)
    return Packed(target or cached, environment, seconds)


def base_python() -> str:
    """Return the path of the Python below a virtual environment."""
    base: str = getattr(sys, "_base_executable", None) or sys.executable
    return os.path.realpath(base)


def cache_folder() -> Path:
    """Return the folder of the archives that were packed."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "tfos_lab" / "environments"


def _key(environment: Environment, inventory: Inventory, python: str) -> str:
    text = f"{environment.digest} {inventory.prefix} {python}"
    return f"{inventory.prefix.name.strip('.')}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _problems_of(target: Path | None) -> list[str]:
    if target is not None and target.is_dir():
        return [f"output: {target} is a folder; name a file, such as {target / 'environment.tar.gz'}"]
    if target is not None and not target.parent.is_dir():
        return [f"output: there is no folder {target.parent}"]
    return []


def _forget_old(newest: Path) -> None:
    """Remove all but a few archives: each has the size of an environment."""
    archives = sorted(newest.parent.glob("*.tar.gz"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in archives[_KEPT:]:
        path.unlink(missing_ok=True)


def is_conda(prefix: Path) -> bool:
    """Whether a folder is a conda environment."""
    return (prefix / "conda-meta").is_dir()


def write_conda_archive(target: Path, inventory: Inventory, environment: Environment) -> None:
    """Write a conda environment as ``.tar.gz``, with the files of its editable packages.

    Raises
    ------
    ConfigError
        If conda-pack is not installed, or refuses the environment.
    """
    if inventory.exclude:
        raise ConfigError(["exclude: conda-pack packs a conda environment as a whole; make a smaller one to pack"])
    if importlib.util.find_spec("conda_pack") is None:
        needed = "is a conda environment, which is packed with conda-pack: pip install 'tfos_lab[pack]'"
        raise ConfigError([f"{inventory.prefix} {needed}"])
    from conda_pack import CondaPackException
    from conda_pack.core import CondaEnv, File

    partial = target.with_name(f".{target.name}.{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder:
        manifest = Path(folder) / MANIFEST
        manifest.write_text(environment.to_json())
        added = [File(str(manifest), MANIFEST, is_conda=False, file_mode=None)]
        home = inventory.site_packages.relative_to(inventory.prefix)
        sources = inventory.sources()
        added += [File(str(path), str(home / name), is_conda=False, file_mode=None) for name, path in sources.files()]
        links = {str(link) for link in sources.links}
        try:
            found = CondaEnv.from_prefix(str(inventory.prefix), ignore_editable_packages=True)
            kept = [file for file in found.files if file.source not in links]
            CondaEnv(found.prefix, [*added, *kept]).pack(
                output=str(partial), format="tar.gz", compress_level=1, force=True
            )
        except CondaPackException as error:
            raise ConfigError([f"conda-pack cannot pack {inventory.prefix}: {error}"]) from error
        else:
            partial.rename(target)
        finally:
            partial.unlink(missing_ok=True)
