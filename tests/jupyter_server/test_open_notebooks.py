"""Which notebook a kernel belongs to, and where its runs are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tfos_lab.jupyter_server.open_notebooks import OpenNotebooks


class Sessions:
    """What a session manager answers."""

    async def list_sessions(self):
        kernels = {"k1": "busy", "k2": "idle"}
        paths = {"k1": ("deep/train.ipynb", "notebook"), "k2": ("script.py", "console")}
        return [
            {"path": paths[kernel][0], "type": paths[kernel][1], "kernel": {"id": kernel, "execution_state": state}}
            for kernel, state in kernels.items()
        ] + [{"path": "pending.ipynb", "type": "notebook", "kernel": None}]


@pytest.fixture
def root(tmp_path):
    (tmp_path / "old.ipynb").touch()
    return tmp_path


@pytest.fixture
def notebooks(root):
    return asyncio.run(OpenNotebooks.ask(Sessions(), str(root)))


def test_a_kernel_of_this_server_has_the_notebook_of_its_session(notebooks):
    assert notebooks.notebook_of("k1", "/somewhere/else.ipynb") == "deep/train.ipynb"
    assert notebooks.notebook_of("k2", "") == ""
    assert [notebooks.kernel_state(kernel) for kernel in ("k1", "k2", "k3")] == ["busy", "idle", ""]


def test_another_kernel_has_the_recorded_one_if_it_is_below_the_root(notebooks, root):
    assert notebooks.notebook_of("k3", str(root / "old.ipynb")) == "old.ipynb"
    assert notebooks.notebook_of("k3", str(root / "renamed.ipynb")) == ""
    assert notebooks.notebook_of("k3", str(root.parent / "old.ipynb")) == ""
    assert notebooks.notebook_of("k3", "old.ipynb") == ""
    assert OpenNotebooks({}, "").notebook_of("k3", str(root / "old.ipynb")) == ""


def test_runs_are_beside_the_notebooks_or_where_the_user_wants_them(notebooks, root, monkeypatch):
    monkeypatch.setenv("TFOS_LAB_RUNS", "/runs")
    folders = list(notebooks.run_folders())
    assert folders[0] == root / "runs"
    assert root / "deep" / "runs" in folders
    assert Path("/runs") in folders
