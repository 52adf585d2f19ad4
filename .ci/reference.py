"""Writes the API reference as Markdown, from the signatures and docstrings of what is public."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

# Public packages beside `tfos_lab` itself, whose names are in `__all__`.
PACKAGES = ("tfos_lab", "tfos_lab.data", "tfos_lab.ml", "tfos_lab.errors")
# Classes of what public functions return, which nobody makes by name.
RETURNED = (
    "tfos_lab.driver.interactive.InteractiveCluster",
    "tfos_lab.driver.diagnosis.diagnosis.Diagnosis",
    "tfos_lab.driver.runs.run.Run",
)
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
_QUOTED = re.compile(r": '([^']*)'")
_OWN = ("self", "cls")
_ENTRY = re.compile(r"^(?=\S)", re.MULTILINE)


def reference_markdown() -> str:
    """Return the page."""
    parts = ["# Reference\n\nWritten from the docstrings of what is public; `help(name)` shows the same.\n"]
    for name in PACKAGES:
        module = importlib.import_module(name)
        parts.append(f"## {name}\n\n{_text(inspect.getdoc(module) or '')}\n")
        parts += [_describe(f"{name}.{member}", value) for member, value in _members(module)]
    parts.append("## What functions return\n")
    for path in RETURNED:
        home, _, name = path.rpartition(".")
        parts.append(_describe(name, getattr(importlib.import_module(home), name), made_by_us=True))
    return "\n".join(parts)


def _members(module: ModuleType) -> Iterator[tuple[str, object]]:
    for name in module.__all__:
        value = getattr(module, name)
        if not name.startswith("_") and not isinstance(value, ModuleType | str):
            yield name, value


def _describe(name: str, value: object, *, made_by_us: bool = False) -> str:
    parts = [f"### {name}\n", "" if made_by_us else _signature(name, value), _document(value)]
    if inspect.isclass(value):
        parts += [_describe_member(name, member, one) for member, one in _own_members(value)]
    return "\n".join(part for part in parts if part)


def _own_members(owner: type) -> Iterator[tuple[str, object]]:
    """Yield a class's documented methods and properties, those of our own base classes included."""
    bases = [base for base in reversed(owner.__mro__) if base.__module__.partition(".")[0] == "tfos_lab"]
    found = {name: value for base in bases for name, value in vars(base).items()}
    internal = found.get("_internal", ())  # what a class has for the rest of the package
    for name, value in found.items():
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        is_shown = not name.startswith("_") and name not in internal
        if is_shown and (inspect.isfunction(function) or isinstance(value, property)):
            yield name, function


def _describe_member(owner: str, name: str, value: object) -> str:
    title = f"{owner.rpartition('.')[2]}.{name}"
    return f"#### {title}\n\n{_signature(title, value)}\n{_document(value)}"


def _signature(name: str, value: object) -> str:
    if isinstance(value, property) or not callable(value) or _is_error(value):
        return ""
    try:
        signature = inspect.signature(_callable(value))
    except (TypeError, ValueError):
        return ""
    # Annotations are strings, which Python shows in quotes.
    shown = [_QUOTED.sub(r": \1", str(one)) for name, one in signature.parameters.items() if name not in _OWN]
    returned = signature.return_annotation
    arrow = f" -> {_plain(returned)}" if returned is not inspect.Signature.empty else ""
    lines = "".join(f"    {one},\n" for one in _with_star(signature, shown))
    compact = f"{name}({', '.join(_with_star(signature, shown))}){arrow}"
    text = compact if len(compact) <= 100 else f"{name}(\n{lines}){arrow}"
    return f"```text\n{text}\n```\n"


def _with_star(signature: inspect.Signature, shown: list[str]) -> list[str]:
    kinds = [one.kind for name, one in signature.parameters.items() if name not in _OWN]
    keyword = inspect.Parameter.KEYWORD_ONLY
    if keyword in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        first = kinds.index(keyword)
        return [*shown[:first], "*", *shown[first:]]
    return shown


def _is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)


def _callable(value: object) -> Callable[..., object]:
    assert callable(value)
    return value


def _plain(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


# ---- docstrings -----------------------------------------------------------------------------------------------------


def _document(value: object) -> str:
    """Return a docstring in NumPy's style as Markdown."""
    text = inspect.getdoc(value) or ""
    if dataclasses.is_dataclass(value) and text.startswith(f"{getattr(value, '__name__', '')}("):
        return ""  # made by dataclasses, not written
    before, *rest = _SECTION.split(text)
    parts = [_text(before.strip())]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        parts.append(f"**{title}**\n\n{_section(title, body.strip())}")
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(title: str, body: str) -> str:
    if title == "Examples":
        return f"```pycon\n{body}\n```"
    if title in ("Notes", "See Also"):
        return _text(body)
    return "\n".join(_entry(entry) for entry in _ENTRY.split(body) if entry.strip())


def _entry(entry: str) -> str:
    """Return one parameter, result or error: what is left of the colon, its type, and the indented text below."""
    head, _, body = entry.strip().partition("\n")
    name, _, kind = head.partition(" : ")
    meaning = _text(inspect.cleandoc(body)).replace("\n", " ")
    return f"* `{name}`{f' (`{kind}`)' if kind else ''}{f': {meaning}' if meaning else ''}"


def _text(text: str) -> str:
    """Return reStructuredText's literals as Markdown's; indented blocks are code in both."""
    return text.replace("``", "`")


if __name__ == "__main__":
    sys.stdout.write(reference_markdown())
