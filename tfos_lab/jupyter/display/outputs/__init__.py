"""Small scripts that stand in outputs themselves, each one function of its options."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def script(name: str) -> str:
    """Return the function that a file of this folder holds, as an expression of JavaScript."""
    text = (resources.files(__name__) / name).read_text("utf-8")
    return text[text.index("function ") :].strip()
