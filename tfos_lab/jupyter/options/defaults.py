"""The defaults of options that differ from the built-in ones: an administrator's, and this notebook's over them.

A line says more than the notebook's defaults (``%tfos config``), those more than the administrator's (traitlets), and
those more than what `tfos_lab.core.config` declares. They hold for cells; who calls `tfos_lab.run` says everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

ADMIN = "configuration"
SESSION = "%tfos config"


class Defaults:
    """Defaults by the names of options in a cell, checked by who sets them."""

    def __init__(self) -> None:
        self._by_source: dict[str, dict[str, object]] = {ADMIN: {}, SESSION: {}}

    def set(self, source: str, values: Mapping[str, object]) -> None:
        """Add defaults, or replace those of the same names."""
        self._by_source[source].update(values)

    def forget(self, source: str, name: str | None = None) -> None:
        """Remove one default of a source, or all of them."""
        kept = {} if name is None else {one: value for one, value in self._by_source[source].items() if one != name}
        self._by_source[source] = kept

    def clear(self) -> None:
        """Remove the defaults of all sources."""
        for source in self._by_source:
            self.forget(source)

    def values(self) -> Mapping[str, object]:
        """Return what holds for a cell that says nothing."""
        return MappingProxyType({**self._by_source[ADMIN], **self._by_source[SESSION]})

    def source_of(self, name: str) -> str:
        """Return who has set a default, or "" for a built-in one."""
        return next((source for source in (SESSION, ADMIN) if name in self._by_source[source]), "")

    def describe(self) -> str:
        """Return what holds, such as ``num_ps=1 (%tfos config)``; "" if nothing does."""
        return ", ".join(f"{name}={value!r} ({self.source_of(name)})" for name, value in self.values().items())


#: The defaults of this process, which has one notebook.
DEFAULTS = Defaults()
