"""Source text of notebook cells, sent from one process to another."""

from __future__ import annotations

import linecache
from pathlib import Path

from tfos_lab.payload import notebook_sources
from tfos_lab.payload.notebook_sources import Source


def test_a_cell_s_source_can_be_read_after_registering() -> None:
    notebook_sources.register([Source("<cell-a>", "Cell In[7]", "a = 1\nb = 2\n")])
    linecache.checkcache()
    assert linecache.getline("<cell-a>", 2) == "b = 2\n"
    assert notebook_sources.label("<cell-a>") == "Cell In[7]"


def test_a_real_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "real.py"
    path.write_text("here = True\n")
    notebook_sources.register([Source(str(path), "", "elsewhere = True\n")])
    assert linecache.getline(str(path), 1) == "here = True\n"


def test_collect_returns_the_files_that_have_a_text() -> None:
    linecache.cache["<cell-b>"] = (4, None, ["x=1\n"], "<cell-b>")
    assert notebook_sources.collect(["<cell-b>", "<nowhere>"]) == [Source("<cell-b>", "", "x=1\n")]


def test_names_of_plain_ipython_give_the_cell_number() -> None:
    assert notebook_sources.label("<ipython-input-12-0123abcd>") == "Cell In[12]"
    assert notebook_sources.label("/some/file.py") is None


def test_a_labeller_is_asked_first() -> None:
    def labeller(filename: str) -> str | None:
        return "Cell In[1]" if filename == "<cell-c>" else None

    notebook_sources.add_labeller(labeller)
    try:
        assert notebook_sources.label("<cell-c>") == "Cell In[1]"
        assert notebook_sources.label("<cell-d>") is None
    finally:
        notebook_sources._labellers.remove(labeller)
