"""A small virtual environment with an installed package, and two editable ones."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tfos_lab.engine.environment.inventory import Inventory

LIB = Path(f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages")


def install(site_packages, name, version, files):
    """Install a distribution as pip does: its files, and its metadata."""
    info = site_packages / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for file, text in files.items():
        (site_packages / file).parent.mkdir(parents=True, exist_ok=True)
        (site_packages / file).write_text(text)
    recorded = [*files, f"{info.name}/METADATA", f"{info.name}/RECORD"]
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in recorded))


@pytest.fixture
def prefix(tmp_path):
    """An environment with `installed` 1.0, `spare` 2.0, and the editable packages `flat` and `found`."""
    prefix = tmp_path / "env"
    venv.create(prefix, symlinks=True)
    site_packages = prefix / LIB
    install(site_packages, "installed", "1.0", {"installed/__init__.py": "import sys\ndef main(): print(sys.prefix)\n"})
    install(site_packages, "spare_parts", "2.0", {"spare/__init__.py": ""})
    script = prefix / "bin/say-prefix"
    script.write_text(f"#!{prefix}/bin/python\nimport installed\ninstalled.main()\n")
    script.chmod(0o755)
    project = tmp_path / "flat-project"
    (project / "flat").mkdir(parents=True)
    (project / "flat/__init__.py").write_text("PLACE = __file__\n")
    (project / "pyproject.toml").write_text("")
    (project / "docs").mkdir()
    (site_packages / "_flat.pth").write_text(f"{project}\n")
    other = tmp_path / "other/src/found"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("PLACE = __file__\n")
    (other / "data.txt").write_text("data")
    (site_packages / "__editable___found_1_0_finder.py").write_text(
        f"import sys\nMAPPING: dict[str, str] = {{'found': {str(other)!r}}}\nNAMESPACES: dict[str, list[str]] = {{}}\n"
    )
    (site_packages / "__editable__.found-1.0.pth").write_text(
        "import __editable___found_1_0_finder; __editable___found_1_0_finder.install()\n"
    )
    return prefix


@pytest.fixture
def inventory(prefix):
    """What is in that environment."""
    return Inventory(prefix, prefix / LIB)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def python_in(tmp_path):
    """A function that unpacks an archive, and runs code with the Python in it."""

    def run(archive, *arguments):
        folder = tmp_path / "elsewhere/environment"
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [folder / "bin" / arguments[0], *arguments[1:]]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/", env=environ)
        return done.stdout.strip(), folder

    return run
