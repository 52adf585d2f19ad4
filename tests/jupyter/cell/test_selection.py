"""Cells of the notebook, by number or name, as one script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.jupyter.scripted import ScriptedCluster
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.cell.export import FinishedCell
from tfos_lab.jupyter.cell.selection import NotebookCells
from tfos_lab.jupyter.options.table import parse_options


def finished(line: str, body: str, **names: Any) -> FinishedCell:
    return FinishedCell(line, body, parse_options(line, names), ())


TEXTS = [
    "",
    "RATE = 1",
    "def build():\n    return RATE",
    "unused = 1",
    "%%tfos name=train cluster_size=2\nbuild()",
    "rates = [RATE]",
    "%%tfos name=train cluster_size=3\nbuild() + 1",
    "RATE = 2",
    "def build():\n    return RATE",
    "%%tfos name=score args=rates\nargs",
    "print(train.results, rates)",
    "%%tfos on=train\n1",
    "%%tfos cluster_sice=2\n1",
    "1 +",
]
CELLS = NotebookCells(
    TEXTS,
    {
        4: finished("name=train cluster_size=2", "build()"),
        6: finished("name=train cluster_size=3", "build() + 1"),
        9: finished("name=score args=rates", "args", rates=[]),
    },
)


def script(*words: str) -> str:
    return CELLS.script(CELLS.numbers_of(words))


def positions(text: str, *pieces: str) -> list[int]:
    return [text.index(piece) for piece in pieces]


def test_a_name_means_its_last_cell() -> None:
    assert CELLS.numbers_of(["score", "train", "4", "train"]) == [4, 6, 9]
    text = script("train")
    assert "cluster_size=3" in text
    assert "def map_fun(args, ctx=None):\n    return build() + 1\n" in text
    assert "unused" not in text


def test_several_cells_are_one_script_in_the_notebooks_order() -> None:
    text = script("score", "4")
    places = positions(
        text, "RATE = 1", "def map_fun_4(", "map_fun_4, None", "rates = [RATE]", "def map_fun_9(", "score = "
    )
    assert places == sorted(places)
    assert text.count("spark = ") == 1
    compile(text, "script", "exec")


def test_any_cell_can_be_exported_with_the_runs_that_it_uses() -> None:
    text = script("10")
    places = positions(
        text, "RATE = 1", "def build()", "def map_fun(", "train = tfos_lab.run(", "print(train.results, rates)"
    )
    assert places == sorted(places)
    assert text.count("def build()") == 1
    assert "score" not in text


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("trane", "trane: this is no cell's number, and no %%tfos cell has that name; did you mean train?"),
        ("0", "0: this kernel has run no cell In[0]"),
        ("99", "99: this kernel has run no cell In[99]"),
        ("11", "11: In[11] runs on nodes that wait, and a script has none; export others"),
        ("12", "12: In[12] did not get as far as its nodes; correct it, and run it again"),
        ("13", "13: In[13] is no Python"),
    ],
)
def test_what_cannot_be_exported_is_named(word: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        CELLS.numbers_of([word])
    assert str(error.value) == message


def test_all_that_is_wrong_is_named_together() -> None:
    with pytest.raises(ConfigError) as error:
        CELLS.numbers_of(["99", "13", "train"])
    assert len(error.value.problems) == 2


def test_cells_are_exported_from_a_notebook(
    magics: Any, run_cell: Any, scripted: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted(ScriptedCluster("first"), ScriptedCluster("second"))
    run_cell("base = 40")
    run_cell("%%tfos name=first\nbase")
    number = magics.execution_count - 1
    run_cell("%%tfos name=second\nbase + 1")
    path = tmp_path / "both.py"
    run_cell(f"%tfos export {path} second {number}")
    assert capsys.readouterr().out.endswith(f"wrote {path}; run it with: spark-submit {path}\n")
    text = path.read_text()
    assert text.index(f"def map_fun_{number}(") < text.index("second = tfos_lab.run(")
