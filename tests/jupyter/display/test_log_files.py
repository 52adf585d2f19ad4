"""Log files: links to them, and their pieces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tfos_lab.jupyter.display import log_files
from tfos_lab.jupyter.display.log_files import link_to, read_piece

# ---- links ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root folder of a Jupyter server, which has started this process for a notebook in ``work``."""
    runtime, root = tmp_path / "runtime", tmp_path / "root"
    runtime.mkdir()
    (root / "work").mkdir(parents=True)
    (runtime / "jpserver-7.json").write_text(
        json.dumps({"url": "http://127.0.0.1:8888/", "base_url": "/", "root_dir": str(root)})
    )
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("JPY_PARENT_PID", "7")
    monkeypatch.setenv("JPY_SESSION_NAME", str(root / "work/a.ipynb"))
    return root


def make(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_the_link_is_relative_to_the_notebook(root: Path) -> None:
    assert link_to(make(root / "work/runs/a run/chief-0.log")) == "runs/a%20run/chief-0.log"
    assert link_to(make(root / "runs/chief-0.log")) == "../runs/chief-0.log"


@pytest.mark.parametrize("path", ["../elsewhere/chief-0.log", ".cache/chief-0.log", "work/.runs/chief-0.log"])
def test_there_is_no_link_to_files_that_the_server_does_not_show(root: Path, path: str) -> None:
    assert link_to(make(root / path)) is None


def test_there_is_no_link_to_a_file_that_was_never_written(root: Path) -> None:
    assert link_to(root / "work/chief-0.log") is None


@pytest.mark.parametrize("variable", ["JPY_PARENT_PID", "JPY_SESSION_NAME"])
def test_outside_a_notebook_there_is_no_link(root: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    path = make(root / "work/chief-0.log")
    monkeypatch.delenv(variable)
    assert link_to(path) is None


# ---- pieces ---------------------------------------------------------------------------------------------------------


def test_the_pieces_make_up_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "PIECE_BYTES", 7)
    path = tmp_path / "log"
    path.write_bytes(bytes(range(100)))
    whole = b""
    while piece := read_piece(path, len(whole)).data:
        whole += piece
    assert whole == bytes(range(100))
    assert read_piece(path, 0).size == 100


@pytest.mark.parametrize("offset", [-1, 1000, None, "0", 0.5])
def test_an_offset_outside_the_file_gives_no_bytes(tmp_path: Path, offset: object) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x")
    assert read_piece(path, offset).data == b""


def test_a_node_that_has_printed_nothing_has_an_empty_file(tmp_path: Path) -> None:
    assert read_piece(tmp_path / "none", 0) == (b"", 0)
