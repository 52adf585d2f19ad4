"""The README: its Python is executed as one notebook, and what it says of files, options and packages is true."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import nbformat
import pytest

from tfos_lab.jupyter.commands import Commands
from tfos_lab.jupyter.options.table import OPTIONS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()

_BLOCK = re.compile(r"^(<!-- not run.*-->\n)?```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SNIPPETS = [code for mark, code in _BLOCK.findall(README) if not mark]
NOT_RUN = [code for mark, code in _BLOCK.findall(README) if mark]


@pytest.mark.notebook
@pytest.mark.tensorflow
@pytest.mark.timeout(600)
def test_the_python_in_the_readme_runs(execute, tmp_path):
    cells = [nbformat.v4.new_code_cell(code.strip()) for code in SNIPPETS]
    path = tmp_path / "readme.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    done = execute(path)
    shown = [cell.outputs[-1].get("data", {}).get("text/plain", "") for cell in done.notebook.cells if cell.outputs]
    assert "{'chief:0': 40, 'worker:0': 40}" in shown
    assert any("worker:0: [" in text for text in shown)


def test_what_is_not_run_is_python_at_least():
    assert NOT_RUN
    for code in NOT_RUN:
        ast.parse(code)


def test_all_options_are_in_the_table():
    table = README.split("## Options")[1].split("## From Python")[0]
    for option in OPTIONS:
        assert f"`{option.name}`" in table


def test_the_line_magics_that_it_names_are_there():
    commands = Commands(lambda: None, list)
    named = set(re.findall(r"`%tfos (\w+)", README))
    assert named
    assert named <= set(commands.complete([]))


def test_every_dependency_has_a_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    table = README.split("## Dependencies")[1].split("## Not there yet")[0]
    for requirement in [*project["dependencies"], *project["optional-dependencies"]["lab"]]:
        name = re.match(r"[\w-]+", requirement)[0]
        assert re.search(rf"\b{name}\b", table), name


def test_the_pictures_and_files_that_it_names_are_there():
    for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README):
        assert (ROOT / path).is_file(), path
    assert (ROOT / "environment.yml").is_file()


def test_it_is_short_enough_to_be_read():
    assert len(README.splitlines()) < 260
