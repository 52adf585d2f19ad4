"""The options as documents list them."""

from __future__ import annotations

import re
from pathlib import Path

from tfos_lab.jupyter.options.documents import describe_options, options_markdown
from tfos_lab.jupyter.options.table import OPTIONS

DOCUMENT = Path(__file__).parents[3] / "docs" / "options.md"


def test_the_help_names_every_option_with_its_default() -> None:
    text = describe_options()
    for option in OPTIONS:
        assert option.meaning in text
    assert "cluster_size          nodes in all: workers, chief, ps and evaluator [whole number; 1]" in text


def test_the_tables_hold_every_option_once_under_its_heading() -> None:
    text = options_markdown()
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == [option.name for option in OPTIONS]
    assert "| `grace` | seconds between asking a node to end and killing it | `10` |" in text.split("### Time")[1]
    assert "| `spark` | whose executors to use | the active session |" in text


def test_the_document_is_in_step() -> None:
    section = DOCUMENT.read_text("utf-8").split("## Cell options\n", 1)[1].split("\n## ", 1)[0]
    assert section.strip() == options_markdown(), "python .ci/write_options.py puts them in step"
