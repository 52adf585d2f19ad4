"""Packs a conda environment, its Python included, with conda-pack."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path

from tfos_lab.core.environments import MANIFEST, Environment
from tfos_lab.engine.environment.inventory import Inventory
from tfos_lab.errors import ConfigError


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
