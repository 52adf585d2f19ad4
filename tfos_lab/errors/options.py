"""Errors in a request: options that cannot work, and values that cannot be sent to the nodes."""

from __future__ import annotations

from tfos_lab.errors.base import TfosError


class ConfigError(TfosError, ValueError):
    """Options that cannot work. All problems are reported together."""

    problems: list[str]

    def __init__(self, problems: list[str]) -> None:
        super().__init__(problems=list(problems))

    def __str__(self) -> str:
        return "; ".join(self.problems)


class ParamError(ConfigError, TypeError):
    """A value that a param of a Spark ML stage cannot have; a TypeError too, which is what Spark's own stages raise."""


class PayloadError(TfosError, TypeError):
    """A function, or a value that it uses, cannot be sent to the nodes."""

    name: str
    type_name: str
    reason: str
    advice: str

    def __init__(self, *, name: str, type_name: str, reason: str, advice: str) -> None:
        super().__init__(name=name, type_name=type_name, reason=reason, advice=advice)

    def __str__(self) -> str:
        return f"'{self.name}' ({self.type_name}) cannot be sent to the nodes: {self.reason}. {self.advice}"
