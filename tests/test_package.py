"""What one ``pip install`` brings: the server's extension, JupyterLab's, the dashboard, and a cell that runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import hatchling.build
import pytest

from tests.support.lab_extension import built_lab_extension

ROOT = Path(__file__).parent.parent
LAB = "share/jupyter/labextensions/tfos-lab"

# Runs a notebook with a kernel of the Python that runs this, and prints what its cells print.
FIRST_CELLS = """
import nbformat
from nbclient import NotebookClient

cells = [
    "%load_ext tfos_lab",
    "import tfos_lab; print(tfos_lab.__file__)",
    "from tfos_lab.jupyter.display.dashboard import DashboardWidget; print(len(DashboardWidget._esm) > 10_000)",
    "%%tfos local=inline\\nctx.job_name",
    "print(dict(cluster.results))",
]
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
NotebookClient(notebook, timeout=120, iopub_timeout=120, startup_timeout=120).execute()
for cell in notebook.cells:
    for output in cell.outputs:
        print(output.get("text") or output.data.get("text/plain"))
"""


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command that must succeed; returns what it prints."""
    done = subprocess.run(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


# ---- from a clean checkout to a cell that runs -----------------------------------------------------------------------


@dataclass
class Installed:
    """An environment with the wheel in it, away from the repository."""

    folder: Path
    python: Path
    env: dict[str, str]

    def run(self, *command: str | Path) -> str:
        return run(*command, cwd=self.folder, env=self.env)

    def call(self, function: str, *arguments: str) -> str:
        """Call the main function of a command-line tool: the tools themselves start another environment's Python."""
        module, name = function.rsplit(".", 1)
        return self.run(self.python, "-c", f"import sys; from {module} import {name}; sys.exit({name}())", *arguments)


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a clean copy of what git knows and does not ignore."""
    folder = tmp_path_factory.mktemp("sdist")
    files = subprocess.run(
        ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"),
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in files.stdout.decode().split("\0"):
        if (ROOT / name).is_file():
            (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / "tree" / name)
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=folder / "tree")
    [made] = folder.glob("*.tar.gz")
    return made


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """Built from the sdist, where there is no Node.js."""
    with tarfile.open(sdist) as archive:
        archive.extractall(sdist.parent / "unpacked", filter="data")
    [tree] = (sdist.parent / "unpacked").iterdir()
    env = {**os.environ, "PATH": "/nonexistent"}
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", sdist.parent, cwd=tree, env=env)
    [made] = sdist.parent.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in an environment of its own that shares the locked packages, but not the checkout's tfos_lab.

    A folder that a .pth file adds is searched, but .pth files in it are not read: so the checkout, which stands in the
    developer's environment as such a file, cannot be imported.
    """
    folder = tmp_path_factory.mktemp("elsewhere")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    python = folder / "venv/bin/python"
    run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=folder)
    [packages] = (folder / "venv/lib").glob("python*/site-packages")
    (packages / "locked.pth").write_text(sysconfig.get_path("purelib"))
    dropped = {"PYTHONPATH", "VIRTUAL_ENV", "JUPYTER_PATH", "JUPYTER_CONFIG_PATH"}
    jupyter = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    more = {"IPYTHONDIR": str(folder / "ipython"), "PYSPARK_PYTHON": str(python), "JUPYTER_PLATFORM_DIRS": "1"}
    env = {name: value for name, value in os.environ.items() if name not in dropped} | jupyter | more
    return Installed(folder, python, env)


@pytest.mark.package
def test_a_clean_checkout_makes_packages_with_the_whole_front_end(sdist: Path, wheel: Path) -> None:
    with tarfile.open(sdist) as archive:
        source = {name.partition("/")[2] for name in archive.getnames()}
    assert {"extensions/yarn.lock", "extensions/build.py", "extensions/dashboard/src/dashboard.ts"} <= source
    assert not [name for name in source if "node_modules" in name]
    with zipfile.ZipFile(wheel) as package:
        names = set(package.namelist())
    built = {f"tfos_lab/jupyter/display/static/{name}" for name in ("dashboard.js", "dashboard.css", "seen_note.js")}
    assert built <= names & source
    assert [name for name in names if name.endswith(f"{LAB}/package.json")]


@pytest.mark.package
def test_both_extensions_are_enabled(installed: Installed) -> None:
    lab = installed.call("jupyterlab.labextensions.main", "list")
    assert re.search(r"tfos-lab v\S+ .*enabled.*OK", lab), lab
    server = installed.call("jupyter_server.extension.serverextension.main", "list")
    assert re.search(r"tfos_lab\.jupyter_server .*enabled", server), server
    assert re.search(r"tfos_lab\.jupyter_server.*OK", server), server


@pytest.mark.package
@pytest.mark.tensorflow
def test_the_doctor_works(installed: Installed) -> None:
    command = [installed.python.with_name("tfos-lab"), "doctor"]
    # It fails where this machine lacks something; what it says of the installation has to be right.
    report = subprocess.run(
        command, cwd=installed.folder, env=installed.env, capture_output=True, text=True, check=False
    )
    for line in (rf"✓ Python .*\({re.escape(str(installed.python))}\)", r"✓ pyspark ", r"✓ TensorFlow "):
        assert re.search(line, report.stdout), report.stdout + report.stderr


@pytest.mark.package
@pytest.mark.tensorflow
def test_a_first_cell_works(installed: Installed) -> None:
    printed = installed.run(installed.python, "-c", FIRST_CELLS)
    assert str(installed.folder / "venv") in printed
    assert str(ROOT) not in printed
    assert "True" in printed
    assert "{'chief:0': 'chief'}" in printed


# ---- failures --------------------------------------------------------------------------------------------------------


def test_a_front_end_that_cannot_be_built_fails_with_one_sentence(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "extensions", tmp_path / "extensions", ignore=shutil.ignore_patterns("node_modules"))
    code = "from extensions import build; build._candidates = lambda: iter(()); build.build()"
    done = subprocess.run((sys.executable, "-c", code), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("The front end of tfos_lab could not be built: no Node.js of that version was found.")
    assert "Node.js >= 20" in done.stderr
    assert done.stderr.count("\n") == 1


# ---- the checkout ----------------------------------------------------------------------------------------------------


def test_an_editable_install_brings_both_extensions(tmp_path, monkeypatch):
    built_lab_extension()
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("SKIP_JUPYTER_BUILDER", "1")  # as `make setup` does, which has built it
    with zipfile.ZipFile(tmp_path / hatchling.build.build_editable(str(tmp_path))) as package:
        data = {name.split(".data/data/")[1]: name for name in package.namelist() if ".data/data/" in name}
        switch = json.loads(package.read(data["etc/jupyter/jupyter_server_config.d/tfos_lab.json"]))
        lab = json.loads(package.read(data[f"{LAB}/package.json"]))
    assert switch == {"ServerApp": {"jpserver_extensions": {"tfos_lab.jupyter_server": True}}}
    assert f"{LAB}/{lab['jupyterlab']['_build']['load']}" in data
    assert f"{LAB}/install.json" in data


def test_the_lock_of_the_front_end_names_no_registry():
    lock = (ROOT / "extensions/yarn.lock").read_text()
    assert not re.search(r"https?://", lock)
    assert "registry" not in (ROOT / "extensions/.yarnrc.yml").read_text().lower()


def test_versions_of_python_and_front_end_agree():
    from tfos_lab import __version__

    for folder in (".", "dashboard", "jupyterlab"):
        package = json.loads((ROOT / "extensions" / folder / "package.json").read_text())
        assert package["version"] == __version__.split(".dev")[0]
    assert os.access(ROOT / ".ci/front-end", os.X_OK)
