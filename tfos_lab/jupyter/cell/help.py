"""Completion and Shift-Tab help for the names that a ``%%tfos`` cell is given: ``ctx``, ``args`` and ``cluster``."""

from __future__ import annotations

import re
from typing import Any

from IPython.core.completer import SimpleCompletion

from tfos_lab.core.markup import h
from tfos_lab.jupyter.cell.given_names import GivenNames, Member

_ATTRIBUTE = re.compile(r"(?<![\w.\])])(?P<root>ctx|args|cluster)\s*\.\s*(?P<word>\w*)$")
_KEY = re.compile(r"(?<![\w.\])])(?P<root>args)\[(?P<quote>['\"])(?P<word>[^'\"]*)$")
_IDENTITY = "__tfos_lab_help__"


def complete_names(text: str, cell: str, names: dict[str, Any]) -> tuple[str, list[SimpleCompletion]]:
    """Return the unfinished word before the cursor, and what can replace it.

    Parameters
    ----------
    text : str
        The cursor's line, up to the cursor.
    cell : str
        The whole cell.
    names : dict
        The notebook's names.
    """
    if found := _ATTRIBUTE.search(text):
        members = GivenNames(cell, names).members(found["root"])
        return found["word"], [SimpleCompletion(name, type=_type_of(members[name])) for name in sorted(members)]
    if found := _KEY.search(text):
        return found["word"], [SimpleCompletion(key, type="value") for key in GivenNames(cell, names).keys("args")]
    return "", []


def _type_of(member: Member) -> str:
    return "function" if member.function is not None else "property"


def install(shell: Any) -> None:
    """Have the shell's help know the names of a ``%%tfos`` cell; may be called twice."""
    remove(shell)
    original = shell.object_inspect_mime

    def object_inspect_mime(oname: str, detail_level: int = 0, omit_sections: Any = ()) -> dict[str, str]:
        member = _member(oname, _asked_cell(shell), shell.user_ns)
        if member is None:
            found: dict[str, str] = original(oname, detail_level, omit_sections)
        elif member.function is not None:
            found = shell.inspector._get_info(member.function, oname, detail_level=detail_level)  # noqa: SLF001
        else:
            found = {"text/plain": member.text, "text/html": h("pre", member.text)}
        return found

    setattr(object_inspect_mime, _IDENTITY, True)
    shell.object_inspect_mime = object_inspect_mime


def remove(shell: Any) -> None:
    """Give the shell its own help back."""
    if hasattr(shell.object_inspect_mime, _IDENTITY):
        del shell.object_inspect_mime


def _asked_cell(shell: Any) -> str:
    """Return the cell that a front end asks about."""
    kernel = getattr(shell, "kernel", None)
    message = kernel.get_parent() if kernel is not None else {}
    if message.get("header", {}).get("msg_type") != "inspect_request":
        return ""
    return str(message["content"].get("code", ""))


def _member(oname: str, cell: str, names: dict[str, Any]) -> Member | None:
    root, *path = oname.split(".")
    given = GivenNames(cell, names)
    if len(path) > 1 or not given.has(root):
        return None
    return given.members(root).get(path[0]) if path else given.describe(root)
