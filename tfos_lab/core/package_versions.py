"""Which versions of other packages fit: with this tfos_lab, with one another, and on notebook and executors.

And what a packed environment holds, which `tfos_lab.driver.pack` makes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from tfos_lab.errors import ConfigError


@dataclass(frozen=True)
class Range:
    """The versions of a package that fit: from one on, before another; `pyproject.toml` asks for the same."""

    package: str
    first: tuple[int, ...]
    before: tuple[int, ...]

    @property
    def wanted(self) -> str:
        """The range as pip takes it."""
        return f"{self.package}>={dotted(self.first)},<{dotted(self.before)}"

    @property
    def advice(self) -> str:
        """How to come by one that fits."""
        return (
            f"use Python {dotted(self.first)} or newer" if self.package == "python" else f"pip install '{self.wanted}'"
        )


#: ``make matrix`` tries the first and the last version of each of them, and most between.
FITTING = {
    "pyspark": Range("pyspark", (3, 5), (4, 4)),
    "tensorflow": Range("tensorflow", (2, 18), (2, 22)),
    "keras": Range("keras", (3, 10), (3, 16)),
    "tf_keras": Range("tf-keras", (2, 18), (2, 22)),
    "python": Range("python", (3, 11), (3, 14)),
}

#: How many numbers of a version have to agree. TensorFlow's nodes talk to one another, models are saved by one Keras
#: and loaded by another, and Spark's Python workers speak the protocol of their own pyspark.
COMPARED = {"tensorflow": 2, "keras": 2, "pyspark": 2, "numpy": 1}


def installed_version(package: str) -> str | None:
    """Return the version of a package in this Python, without importing it; None if it is not there.

    A pyspark that comes with a Spark is no installed package: its version stands in its own file.
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        pass
    spec = importlib.util.find_spec(package) if package == "pyspark" else None
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).with_name("version.py")
    found = re.search(r'__version__[^"\']*["\']([^"\']+)', file.read_text("utf-8")) if file.is_file() else None
    return found[1] if found else None


def compared_versions() -> dict[str, str]:
    """Return the versions of those packages in this Python, without importing them."""
    found = {name: installed_version(name) for name in COMPARED}
    return {name: version for name, version in found.items() if version is not None}


def differing(theirs: Mapping[str, str], mine: Mapping[str, str]) -> list[str]:
    """Return half a sentence for each package whose versions differ too far.

    Examples
    --------
    >>> differing({"tensorflow": "2.19.1", "numpy": "2.1.0"}, {"tensorflow": "2.21.0", "numpy": "2.4.0"})
    ['its tensorflow is 2.19.1, and this is 2.21.0']
    """
    return [
        f"its {name} is {theirs[name]}, and this is {mine[name]}"
        for name, parts in COMPARED.items()
        if name in theirs and name in mine and theirs[name].split(".")[:parts] != mine[name].split(".")[:parts]
    ]


# ---- what does not fit ----------------------------------------------------------------------------------------------


def misfits(versions: Mapping[str, str] | None = None) -> list[str]:
    """Return a sentence for each installed version that cannot work, with the one to install.

    What is newer than what was tried is no misfit: it may well work, and the doctor tells. ``versions`` are those of
    this Python by default.

    Examples
    --------
    >>> misfits({"tensorflow": "2.16.2", "pyspark": "4.3.0"})
    ["tensorflow 2.16.2 is too old for tfos_lab: pip install 'tensorflow>=2.18,<2.22'"]
    """
    found = _installed() if versions is None else versions
    too_old = [
        f"{name} {found[name]} is too old for tfos_lab: {fitting.advice}"
        for name, fitting in FITTING.items()
        if name in found and numbers_of(found[name]) < fitting.first
    ]
    return [*too_old, *clashes(found)]


def clashes(versions: Mapping[str, str] | None = None) -> list[str]:
    """Return those of `misfits` that are of two packages, each of which would fit alone."""
    found = _installed() if versions is None else versions
    numbers = {name: numbers_of(version) for name, version in found.items()}
    sentences = []
    if numbers.get("numpy", (2,)) < (2,) and numbers.get("pyarrow", (0,)) >= (26,):
        sentences.append(
            f"pyarrow {found['pyarrow']} needs NumPy 2, and NumPy {found['numpy']} is installed: "
            "pip install 'pyarrow<26', or 'numpy>=2'"
        )
    lacks_distutils = numbers.get("python", (0,)) >= (3, 12) and "setuptools" not in numbers
    if numbers.get("pyspark", (4,)) < (4,) and lacks_distutils:
        sentences.append(
            f"pyspark {found['pyspark']} needs distutils, which Python {found['python']} lacks: "
            "pip install setuptools, which brings it"
        )
    return sentences


def _installed() -> dict[str, str]:
    found = {name: installed_version(name) for name in (*FITTING, "numpy", "pyarrow", "setuptools")}
    return {name: version for name, version in found.items() if version} | {"python": dotted(sys.version_info[:3])}


@functools.cache  # only where all is well: what is raised is not kept
def require_fitting() -> None:
    """Raise a ConfigError that names what cannot work of what is installed in this Python."""
    if problems := misfits():
        raise ConfigError(problems)


def numbers_of(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, which tell what it can do."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def dotted(version: Iterable[int]) -> str:
    """Return the numbers of a version as text."""
    return ".".join(map(str, version))


# ---- packed environments: what is written into their archive, and read where it was unpacked ------------------------


# In the root folder of an archive, and its first member: conda-pack sorts them by name.
MANIFEST = ".tfos_lab_environment.json"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What is in a Python environment: the version of each distribution, without those that were left out.

    ``digest`` is the same for environments of the same packages; ``python`` and ``platform`` are such as ``3.11.7`` and
    ``linux-x86_64``.
    """

    digest: str
    python: str
    platform: str
    packages: Mapping[str, str]
    exclude: Sequence[str] = ()

    def to_json(self) -> str:
        """Return it as the text of a manifest."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return it from the text of a manifest; raises `ValueError` for another text."""
        try:
            fields: dict[str, Any] = json.loads(text)
            return cls(**{name: fields[name] for name in ("digest", "python", "platform", "packages", "exclude")})
        except (KeyError, TypeError) as error:
            raise ValueError("no manifest of a packed environment") from error


def unpacked_environment() -> Environment | None:
    """Return what this Python was packed with, if it runs from an archive of ours."""
    with contextlib.suppress(OSError, ValueError):
        return Environment.from_json((Path(sys.prefix) / MANIFEST).read_bytes())
    return None
