"""Writes the tables of options and commands into docs/options.md: its first two chapters.

With ``--check``, it only looks whether they are in step.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
DOCUMENT = ROOT / "docs/options.md"

if TYPE_CHECKING:
    from tfos_lab.core.options import Option


def main() -> None:
    """Replace the chapters."""
    text = DOCUMENT.read_text("utf-8")
    for heading, table in (("Cell options", options_markdown()), ("Line commands", commands_markdown())):
        chapter = re.compile(rf"(?<=^## {heading}\n).*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
        text, count = chapter.subn(lambda _, table=table: f"\n{table}\n\n", text)
        if count != 1:
            sys.exit(f"{DOCUMENT} has no chapter `## {heading}`")
    if "--check" not in sys.argv:
        DOCUMENT.write_text(text, "utf-8")
    elif text != DOCUMENT.read_text("utf-8"):
        sys.exit(f"{DOCUMENT} is not in step with the options: python .ci/write_options.py")


def options_markdown() -> str:
    """Return all options as tables in Markdown, one for each group."""
    from tfos_lab.notebook.options import OPTIONS

    groups = itertools.groupby(OPTIONS, key=lambda one: one.group)
    return "\n\n".join("\n".join(_table(group, members)) for group, members in groups)


def _table(group: str, members: Iterable[Option]) -> list[str]:
    rows = [f"| `{one.name}` | {_meaning(one)} | {_default(one)} |" for one in members]
    return [f"### {group}", "", "| option | meaning | default |", "|---|---|---|", *rows]


def _meaning(one: Option) -> str:
    text = f"{one.meaning}. {one.details}" if one.details else one.meaning
    return text.replace("``", "`").replace("|", "\\|")


def _default(one: Option) -> str:
    spoken = one.default_text or one.shown_default == "none"
    return one.shown_default if spoken else f"`{one.shown_default}`"


def commands_markdown() -> str:
    """Return all commands as a table in Markdown."""
    from tfos_lab.notebook.commands import FORMS

    rows = [(f"%tfos {form}".rstrip().replace("|", "\\|"), meaning) for form, meaning in FORMS.items()]
    return "\n".join(["| command | does |", "|---|---|", *(f"| `{form}` | {meaning} |" for form, meaning in rows)])


if __name__ == "__main__":
    main()
