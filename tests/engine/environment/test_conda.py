"""A conda environment is packed by conda-pack, with the sources of editable packages and our manifest."""

from __future__ import annotations

import importlib.util
import tarfile

import pytest

from tests.engine.environment.conftest import LIB, install
from tfos_lab.engine.environment.archive import read_manifest
from tfos_lab.engine.environment.inventory import Inventory
from tfos_lab.engine.environment.pack import pack
from tfos_lab.errors import ConfigError


@pytest.fixture
def conda(tmp_path):
    """A conda environment, as far as conda-pack asks for one."""
    prefix = tmp_path / "conda"
    install(prefix / LIB, "installed", "1.0", {"installed.py": ""})
    for file in ("conda-meta/history", "bin/python"):
        (prefix / file).parent.mkdir()
        (prefix / file).write_text("")
    (tmp_path / "src/mine").mkdir(parents=True)
    (tmp_path / "src/mine/__init__.py").write_text("")
    (prefix / LIB / "mine.pth").write_text(f"{tmp_path}/src\n")
    return Inventory(prefix, prefix / LIB)


def test_it_has_python_packages_and_editable_sources(conda):
    pytest.importorskip("conda_pack")
    packed = pack(inventory=conda)
    with tarfile.open(packed.path) as opened:
        names = opened.getnames()
    assert {"bin/python", f"{LIB}/installed.py", f"{LIB}/mine/__init__.py"} < set(names)
    assert f"{LIB}/mine.pth" not in names
    assert read_manifest(packed.path) == packed.environment


def test_without_conda_pack_it_says_what_to_install(conda, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"is a conda environment, which is packed with conda-pack: pip install 'tfos_"
    ):
        pack(inventory=conda)


def test_what_cannot_be_left_out_is_said(conda):
    with pytest.raises(ConfigError, match="exclude: conda-pack packs a conda environment as a whole"):
        pack(inventory=Inventory(conda.prefix, conda.site_packages, ["installed"]))
