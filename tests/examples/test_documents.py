"""What the examples say of themselves."""

import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*/*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_each_program_says_how_it_is_run(program):
    # The docstring is the first constant of the code: CPython 3.11.7 parses to trees in one thread at a time only.
    text = compile(program.read_text(), program, "exec").co_consts[0]
    assert re.search(rf"spark-submit --master \S+ .*examples/{program.parent.name}/{program.name} ", text)
    given = set(re.findall(r"--[a-z-]+", text)) - {"--master", "--conf"}
    known = set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', program.read_text()))
    assert given <= known or program.name == "data_setup.py"


def test_the_table_names_each_program_and_links_lead_somewhere():
    text = (EXAMPLES / "README.md").read_text()
    links = re.findall(r"\]\((\S+?)\)", text)
    assert [link for link in links if not (EXAMPLES / link).exists()] == []
    assert {program.name for program in PROGRAMS} <= set(re.findall(r"\w+\.py", text))
