"""Whether the archive that a session ships to its executors is there, fits them, and is up to date."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from tfos_lab.core.environments import Environment, this_platform
from tfos_lab.driver.environment.archive import read_manifest
from tfos_lab.driver.environment.inventory import Inventory

_SHOWN = 3


def alias_of(python: str) -> str:
    """Return the folder that a relative path of a Python begins with: what an archive is unpacked as; "" for others.

    Examples
    --------
    >>> alias_of("./environment/bin/python"), alias_of("/usr/bin/python3"), alias_of("python3")
    ('environment', '', '')
    """
    parts = Path(python).parts
    return "" if Path(python).is_absolute() or len(parts) < 2 else parts[0]


def archive_for(archives: str, alias: str) -> str | None:
    """Return the entry of ``spark.archives`` that is unpacked under a name, without that name."""
    for entry in archives.split(","):
        path, _, name = entry.strip().partition("#")
        if path and (name or Path(path).name) == alias:
            return path
    return None


def problem_with(archives: str, python: str, inventory: Inventory, platform: str = "") -> str:
    """Return what is wrong with the archive from which executors get their Python, as half a sentence; "" if nothing.

    Parameters
    ----------
    archives, python : str
        Spark's settings: ``spark.archives``, and the path of the executors' Python.
    inventory : Inventory
        The environment that it is to be like: the notebook's.
    platform : str
        That of the executors, as far as it is known; that of this machine by default.
    """
    alias = alias_of(python)
    place = archive_for(archives, alias)
    if place is None:
        return f"executors are to run {python}, and spark.archives names no archive #{alias} that holds it"
    path = Path(place.removeprefix("file://"))
    if "://" in str(place) and not place.startswith("file://"):
        return ""  # what executors have unpacked tells
    if not path.exists():
        return f"spark.archives names {path}, which is not there"
    try:
        packed = read_manifest(path)
    except (OSError, ValueError):
        return ""  # made by another program
    return unlike(packed, inventory, platform or this_platform(), str(path))


def unlike(packed: Environment, inventory: Inventory, platform: str, where: str) -> str:
    """Return why a packed environment does not fit the executors' platform or the notebook's packages, or ""."""
    if packed.platform != platform:
        return f"{where} was packed for {packed.platform}, and executors are {platform}"
    now = Inventory(inventory.prefix, inventory.site_packages, tuple(packed.exclude)).environment()
    if now.digest == packed.digest:
        return ""
    return f"{where} is stale: {differences(packed, now)}"


def differences(packed: Environment, now: Environment) -> str:
    """Return in which packages two environments differ, the first few by name."""
    if packed.python != now.python:
        return f"it has Python {packed.python}, and this is {now.python}"
    names = sorted(
        name for name in {*packed.packages, *now.packages} if packed.packages.get(name) != now.packages.get(name)
    )
    if not names:
        return "files of its packages have changed since"
    texts = [f"{name} {_version(packed.packages, name)} there, {_version(now.packages, name)} here" for name in names]
    more = f", and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more


def _version(packages: Mapping[str, str], name: str) -> str:
    return packages.get(name, "missing")


def unpacked_problem(manifest: str, inventory: Inventory, platform: str) -> str:
    """Return what is wrong with the environment that an executor has unpacked, as it reported; "" if nothing is."""
    with contextlib.suppress(ValueError):
        if manifest:
            return unlike(Environment.from_json(manifest), inventory, platform, "its environment")
    return ""
