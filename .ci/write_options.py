"""Writes the tables of options into docs/options.md: what stands between `## Cell options` and the next chapter.

With ``--check``, it only looks whether they are in step.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
DOCUMENT = ROOT / "docs/options.md"
_CHAPTER = re.compile(r"(?<=^## Cell options\n).*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)


def main() -> None:
    """Replace the chapter."""
    from tfos_lab.notebook.options import options_markdown

    text, count = _CHAPTER.subn(lambda _: f"\n{options_markdown()}\n\n", DOCUMENT.read_text("utf-8"))
    if count != 1:
        sys.exit(f"{DOCUMENT} has no chapter `## Cell options`")
    if "--check" not in sys.argv:
        DOCUMENT.write_text(text, "utf-8")
    elif text != DOCUMENT.read_text("utf-8"):
        sys.exit(f"{DOCUMENT} is not in step with the options: python .ci/write_options.py")


if __name__ == "__main__":
    main()
