"""Pieces of whole log files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfos_lab.jupyter.display import log_files
from tfos_lab.jupyter.display.log_files import read_piece


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
def test_what_is_no_place_in_the_file_has_no_bytes(tmp_path: Path, offset: Any) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x")
    assert read_piece(path, offset).data == b""


def test_a_node_that_has_said_nothing_has_an_empty_file(tmp_path: Path) -> None:
    assert read_piece(tmp_path / "none", 0) == (b"", 0)
