"""Packed environments: what is written into an archive of a Python environment, and read where it was unpacked."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

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
