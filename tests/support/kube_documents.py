"""What the documents say of YARN and Kubernetes, as a test can use it: confs, environment, and manifests."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import yaml

_DOCS = Path(__file__).parents[2] / "docs"
PAGE = _DOCS / "deployment.md"
# Where a heading is on both, it is the first page that has its text.
_PAGES = (_DOCS / "storage.md", PAGE)

_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_YAML = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NAMED = re.compile(r"^\|([^|]+)\|", re.MULTILINE)


def section(heading: str) -> str:
    """Return the text below a heading, as far as the next one of its level or a higher one."""
    marks = heading.partition(" ")[0]
    text = next(filter(None, (page.read_text("utf-8").partition(f"\n{heading}\n")[2] for page in _PAGES)), "")
    assert text, heading
    return re.split(rf"^#{{2,{len(marks)}}} ", text, maxsplit=1, flags=re.MULTILINE)[0]


def confs_of(heading: str) -> dict[str, str]:
    """Return what the section's session is configured with."""
    calls = [
        node
        for block in _PYTHON.findall(section(heading))
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    confs = {}
    for call in calls:
        match call.func.attr:
            case "config":
                name, value = (ast.literal_eval(argument) for argument in call.args)
                confs[name] = str(value)
            case "master":
                confs["spark.master"] = ast.literal_eval(call.args[0])
    return confs


def variables_of(heading: str) -> dict[str, str]:
    """Return the environment variables that the section's code sets."""
    return dict(re.findall(r'^os\.environ\["(\w+)"\] = "(.*)"$', section(heading), re.MULTILINE))


def explained_in(heading: str) -> set[str]:
    """Return the settings that the first column of the section's tables names."""
    cells = _NAMED.findall(section(heading))
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def manifests_of(heading: str) -> list[dict[str, Any]]:
    """Return the Kubernetes objects of the section."""
    return [found for block in _YAML.findall(section(heading)) for found in yaml.safe_load_all(block)]
