"""What one ``pip install`` brings: the Jupyter server's extension is switched on, and JupyterLab finds its own."""

from __future__ import annotations

import json
import os
import re
import zipfile
from pathlib import Path

import hatchling.build
import pytest

from tests.support.lab_extension import built_lab_extension

ROOT = Path(__file__).parent.parent
LAB = "share/jupyter/labextensions/tfos-lab"


@pytest.mark.parametrize("build", [hatchling.build.build_wheel, hatchling.build.build_editable])
def test_a_package_brings_both_extensions(build, tmp_path, monkeypatch):
    built_lab_extension()
    monkeypatch.chdir(ROOT)
    with zipfile.ZipFile(tmp_path / build(str(tmp_path))) as package:
        data = {name.split(".data/data/")[1]: name for name in package.namelist() if ".data/data/" in name}
        switch = json.loads(package.read(data["etc/jupyter/jupyter_server_config.d/tfos_lab.json"]))
        lab = json.loads(package.read(data[f"{LAB}/package.json"]))
    assert switch == {"ServerApp": {"jpserver_extensions": {"tfos_lab.jupyter_server": True}}}
    assert f"{LAB}/{lab['jupyterlab']['_build']['load']}" in data
    assert f"{LAB}/install.json" in data


def test_the_lock_of_the_lab_extension_names_no_registry():
    lock = (ROOT / "extensions/jupyterlab/yarn.lock").read_text()
    assert not re.search(r"https?://", lock)
    assert "registry" not in (ROOT / "extensions/jupyterlab/.yarnrc.yml").read_text().lower()


def test_versions_of_the_two_extensions_agree():
    from tfos_lab import __version__

    package = json.loads((ROOT / "extensions/jupyterlab/package.json").read_text())
    assert package["version"] == __version__.split(".dev")[0]
    assert os.access(ROOT / ".ci/lab-extension", os.X_OK)
