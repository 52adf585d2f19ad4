"""Writes the tables of options and commands into docs/options.md: its first two chapters.

With ``--check``, it only looks whether they are in step.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
DOCUMENT = ROOT / "docs/options.md"


def main() -> None:
    """Replace the chapters."""
    from tfos_lab.notebook.commands import commands_markdown
    from tfos_lab.notebook.options import options_markdown

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


if __name__ == "__main__":
    main()
