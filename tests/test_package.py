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
    """All that ``pip install "tfos_lab[all]"`` brings, where there is no Node.js."""
    return install(wheel, "all", tmp_path_factory.mktemp("elsewhere"))


@pytest.fixture(scope="module")
def driver(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """What ``pip install tfos_lab`` brings: neither TensorFlow nor Spark."""
    return install(wheel, "", tmp_path_factory.mktemp("driver"))


def install(wheel: Path, extras: str, folder: Path) -> Installed:
    uv = Path(sys.executable).with_name("uv")
    python = folder / "venv/bin/python"
    run(uv, "venv", "--quiet", "--python", sys.executable, folder / "venv", cwd=folder)
    # The locked versions, as a new release of some package is not what is tested.
    locked = ("--constraints", ROOT / "requirements.lock")
    wanted = f"tfos_lab[{extras}] @ {wheel.as_uri()}" if extras else str(wheel)
    command = (uv, "pip", "install", "--quiet", "--python", python, *locked, wanted)
    # What is in uv's cache comes from there: where it asks the index, it may build Spark anew, which takes a minute.
    if subprocess.run((*command, "--offline"), cwd=folder, capture_output=True, check=False).returncode:
        run(*command, cwd=folder)
    copy_bytecode(folder / "venv")
    dropped = {"PYTHONPATH", "VIRTUAL_ENV", "JUPYTER_PATH", "JUPYTER_CONFIG_PATH"}
    jupyter = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    more = {"IPYTHONDIR": str(folder / "ipython"), "PYSPARK_PYTHON": str(python), "JUPYTER_PLATFORM_DIRS": "1"}
    more["PATH"] = os.pathsep.join([str(python.parent), *places_without_node()])
    env = {name: value for name, value in os.environ.items() if name not in dropped} | jupyter | more
    return Installed(folder, python, env)


def copy_bytecode(venv: Path) -> None:
    """Bring what Python has compiled of the same files for our environment: TensorFlow's takes longer than its import.

    Files of another version have another time: of these, Python does not take it.
    """
    ours = Path(sysconfig.get_path("purelib"))
    theirs = venv / ours.relative_to(sys.prefix)
    for cache in ours.rglob("__pycache__"):
        target = theirs / cache.relative_to(ours)
        if target.parent.is_dir():
            shutil.copytree(cache, target, dirs_exist_ok=True)


def places_without_node() -> list[str]:
    return [place for place in os.environ["PATH"].split(os.pathsep) if not (Path(place) / "node").exists()]


@pytest.mark.package
def test_a_clean_checkout_makes_packages_with_the_whole_front_end(sdist: Path, wheel: Path) -> None:
    with tarfile.open(sdist) as archive:
        source = {name.partition("/")[2] for name in archive.getnames()}
    assert {"extensions/yarn.lock", "extensions/build.py", "extensions/dashboard/src/dashboard.ts"} <= source
    assert not [name for name in source if "node_modules" in name]
    with zipfile.ZipFile(wheel) as package:
        names = set(package.namelist())
    built = {f"tfos_lab/notebook/display/static/{name}" for name in ("dashboard.js", "dashboard.css", "seen_note.js")}
    assert built <= names & source
    assert [name for name in names if name.endswith(f"{LAB}/package.json")]


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


# ---- what a user sees ------------------------------------------------------------------------------------------------

LOAD = "%load_ext tfos_lab\nimport tfos_lab; print(tfos_lab.__file__)"
INLINE = "%%tfos local=inline\nctx.job_name"
TRAIN = """%%tfos cluster_size=2 name=mnist tensorboard local=processes
import tensorflow as tf
if ctx.is_chief:
    with tf.summary.create_file_writer(ctx.log_dir).as_default():
        for step in range(30):
            tf.summary.scalar("loss", 1 / (step + 1), step=step)
ctx.report(step=1, loss=0.5)
import threading
threading.Event().wait(600)"""


@pytest.mark.package
@pytest.mark.browser
@pytest.mark.tensorflow
def test_card_panel_and_tensorboard_are_there_with_no_further_step(installed: Installed) -> None:
    """Both extensions are enabled: JupyterLab's has the panel, and the server's shows TensorBoard."""
    from playwright.sync_api import expect

    from tests.support.jupyter_rig import JupyterRig

    env = {**installed.env, "PYTHONPATH": "", "TFOS_LAB_RUNS": str(installed.folder / "runs")}
    with JupyterRig(installed.folder / "lab", env=env, python=installed.python) as rig:
        notebook = rig.open_notebook("first.ipynb", [LOAD, INLINE, TRAIN])
        notebook.run_cell(0)
        expect(notebook.output(0)).to_contain_text(str(installed.folder / "venv"))
        notebook.run_cell(1)
        expect(notebook.output(1)).to_contain_text("1/1 nodes done")
        notebook.start_cell(2)
        below = notebook.output(2)
        expect(below).to_contain_text("2/2 nodes running", timeout=60_000)
        board = below.frame_locator("iframe[title='TensorBoard of mnist']")
        expect(board.locator("card-view").first).to_be_visible(timeout=60_000)
        notebook.command("application:toggle-left-area")
        notebook.command("tfos-lab:show-clusters")
        expect(notebook.page.locator("#tfos-lab-clusters")).to_contain_text("mnist", timeout=60_000)
        notebook.interrupt()
        notebook.wait_for_end(2)
        assert notebook.errors == []


# Runs cells one after the other in a kernel's shell, and prints how each has ended.
ON_A_DRIVER = r"""
import importlib.util
from IPython.core.interactiveshell import InteractiveShell

assert importlib.util.find_spec("tensorflow") is None and importlib.util.find_spec("pyspark") is None
shell = InteractiveShell.instance()
for cell in (
    "%load_ext tfos_lab",
    "%%tfos local=inline\nctx.job_name",
    "%%tfos cluster_size=2\nctx.job_name",
    "%%tfos local=off\nctx.job_name",
    "%%tfos local=inline data={'x': [1]}\nctx.job_name",
    "%tfos doctor",
):
    error = shell.run_cell(cell).error_in_exec
    print("told:", error)
"""


@pytest.mark.package
def test_a_driver_needs_neither_tensorflow_nor_pyspark_and_says_what_does(driver: Installed) -> None:
    printed = driver.run(driver.python, "-c", ON_A_DRIVER)
    told = re.findall("^told: (.*)$", printed, re.MULTILINE)
    assert [sentence.partition(". ")[0] for sentence in told] == [
        "None",
        "None",
        (
            "nodes of this machine need TensorFlow, which is not installed: pip install 'tfos_lab[tensorflow]', or "
            "make a session of a cluster, whose executors have it"
        ),
        "local=off insists on Spark, but there is no SparkSession",
        "data is of type dict, but there is no SparkSession to read it with",
        "None",
    ], printed
    assert "✗ pyspark           not installed" in printed


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
    assert switch == {"ServerApp": {"jpserver_extensions": {"tfos_lab.notebook.server": True}}}
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
