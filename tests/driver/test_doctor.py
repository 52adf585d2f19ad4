"""The doctor: faults planted on this machine, in Jupyter's folders and on executors are found with their cures."""

import json
import socket
import stat
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.bare_python import make_bare_python
from tests.support.command_line import doctor_finds
from tests.support.fake_gpus import fake_gpus
from tests.support.kernels import Kernels, told


def found_by(monkeypatch, **environ):
    """Return what the doctor finds on this machine with these variables, by the name of the check."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value) if value is not None else monkeypatch.delenv(name, raising=False)
    return doctor_finds()


def program(folder, name, script):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_what_comes_first_comes_first_and_a_look_at_the_run_folder_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))
    assert list(doctor_finds())[:3] == ["Python", "Java", "pyspark"]
    assert list(tmp_path.iterdir()) == []


def test_every_fault_of_this_machine_is_in_one_report_with_its_cure(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken_port = listener.getsockname()[1]
        found = found_by(
            monkeypatch, JAVA_HOME="/no/such/java", TFOS_LAB_RUNS="/proc/self/runs", http_proxy="http://proxy:3128",
            no_proxy="example.com,127.0.0.1", NO_PROXY=None, TFOS_SERVER_PORT=str(taken_port),
        )  # fmt: skip
    problems = {what: finding for what, finding in found.items() if not finding.ok}
    assert {"Java", "run folder", "proxies", "ports"} <= set(problems)
    assert all(finding.advice for finding in problems.values())
    assert problems["run folder"].found.startswith("/proc/self cannot be written to (")
    assert problems["proxies"].found == (
        "http_proxy also holds for localhost: what this machine sends to itself goes to the proxy"
    )
    assert "export no_proxy=example.com,127.0.0.1,localhost NO_PROXY=example.com" in problems["proxies"].advice
    assert problems["ports"].found == f"TFOS_SERVER_PORT={taken_port}: none is free"


@pytest.mark.parametrize(
    ("said", "ok"), [('openjdk version "21.0.1" 2023-10-17', True), ('java version "1.8.0_412"', False)]
)
def test_the_java_that_spark_would_start_is_asked_for_its_version(monkeypatch, said, ok, tmp_path):
    program(tmp_path, "bin/java", f"echo '{said}' >&2")
    finding = found_by(monkeypatch, JAVA_HOME=str(tmp_path))["Java"]
    assert finding.ok is ok
    needed = "Spark needs Java 17 or newer: apt-get install openjdk-17-jre-headless"
    assert finding.advice.startswith("" if ok else needed)


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo 3.4", "is Python 3.4, and this is"),
        ("echo \"ModuleNotFoundError: No module named 'pyarrow'\" >&2; exit 1", "lacks pyarrow"),
    ],
)
def test_sparks_python_must_be_like_this_one(monkeypatch, tmp_path, script, found):
    finding = found_by(monkeypatch, PYSPARK_PYTHON=str(program(tmp_path, "other", script)))["Spark's Python"]
    assert not finding.ok
    assert found in finding.found
    assert found_by(monkeypatch, PYSPARK_PYTHON="./environment/bin/python")["Spark's Python"].ok, "from an archive"


def test_gpus_and_full_disks_of_this_machine_are_told(monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(total=1 << 40, used=1 << 40, free=3 << 20))
    found = found_by(monkeypatch, **fake_gpus(tmp_path / "host", 3))
    assert found["GPUs"].found == "0, 1, 2; 3 of 3 free"
    assert not found["scratch folder"].ok
    assert (found["shared memory"].ok, found["shared memory"].found) == (False, "/dev/shm is full: 3 MiB are left")
    assert "--shm-size" in found["shared memory"].advice


# ---- what Jupyter loads ---------------------------------------------------------------------------------------------


@pytest.fixture
def folders(monkeypatch, tmp_path):
    """Jupyter's folders for data and configuration, with both extensions; the user's configuration comes first."""
    data, user, system = (tmp_path / name for name in ("data", "user", "system"))
    monkeypatch.setattr("jupyter_core.paths.jupyter_path", lambda *parts: [str(Path(data, *parts))])
    monkeypatch.setattr("jupyter_core.paths.jupyter_config_path", lambda: [str(user), str(system)])
    write(data / "labextensions/tfos-lab/package.json", {})
    write_server(system, enabled=True)
    return data, user, system


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def write_server(folder, *, enabled):
    settings = {"ServerApp": {"jpserver_extensions": {"tfos_lab.notebook.server": enabled}}}
    write(folder / "jupyter_server_config.d/tfos_lab.json", settings)


def test_extensions_that_are_there_are_fine_and_the_user_s_own_word_counts_more_than_the_system_s(monkeypatch, folders):
    write(folders[2] / "labconfig/page_config.json", {"disabledExtensions": {"tfos-lab": True}})
    write(folders[1] / "labconfig/page_config.json", {"disabledExtensions": {"tfos-lab": False}})
    found = found_by(monkeypatch)
    assert found["Lab extension"].ok
    assert found["server extension"].ok


def test_extensions_that_are_disabled_are_problems_with_the_commands_that_enable_them(monkeypatch, folders):
    page = folders[2] / "labconfig/page_config.json"
    write(page, {"disabledExtensions": ["tfos-lab"]})
    write_server(folders[1], enabled=False)
    found = found_by(monkeypatch)
    lab, server = found["Lab extension"], found["server extension"]
    assert (lab.ok, lab.found) == (False, f"disabled in {page}")
    assert lab.advice == "jupyter labextension enable tfos-lab, then reload the page"
    assert server.found == f"disabled in {folders[1]}/jupyter_server_config.d/tfos_lab.json"
    assert server.advice.startswith("jupyter server extension enable tfos_lab.notebook.server")


# ---- fork servers, sessions and executors ---------------------------------------------------------------------------


TELL = "from tests.support.command_line import doctor_finds; tell([doctor_finds()['fork servers'].found])"


def test_a_fork_server_is_warm_unless_it_is_stopped():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        kernels = Kernels(Path(folder))
        stop = "import signal; os.kill(servers()['plain'], signal.SIGSTOP)"
        with kernels.start(f"{TELL}\nrun(lambda args, ctx: 1).wait()\n{TELL}\n{stop}\n{TELL}") as kernel:
            assert told(kernel) == ["none yet: the first cell starts them"]
            assert told(kernel) == ["1 plain warm, 1 tensorflow warm"]
            assert "the plain one was stopped" in told(kernel)[0]
        kernels.close()


def test_a_fork_server_that_cannot_import_is_a_fault_of_its_own_environment(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('no libcudart here')\n")
    broken = (
        f"tfos_lab.run(lambda args, ctx: 1, cluster_size=1, local='processes', env={{'PYTHONPATH': {str(tmp_path)!r}}})"
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        kernels = Kernels(Path(folder))
        fails = f"""
try:
    {broken}.wait()
except tfos_lab.TfosError:
    pass
"""
        with kernels.start(f"{fails}\n{TELL}\nsys.stdin.read()") as kernel:
            assert told(kernel) == ["cannot import: ImportError: no libcudart here"]
            assert "libcudart" not in kernels.outcome(TELL)[0]
            kernel.stdin.close()
        kernels.close()


# ---- real executors -------------------------------------------------------------------------------------------------


OTHER_CLOCK = """
import time
_right = time.time
time.time = lambda: _right() + 600  # more than the job could take
"""


@pytest.fixture
def faulty_python(tmp_path):
    """A Python without TensorFlow, with another Keras by its records, and with a clock that is ten minutes ahead."""
    python = make_bare_python(tmp_path / "python")
    theirs = next((tmp_path / "python/lib").glob("python*/site-packages"))
    (theirs / "ours.pth").unlink()
    for package in Path(np.__file__).parents[1].iterdir():
        if not package.name.startswith(("tensorflow", "keras-")):
            (theirs / package.name).symlink_to(package)
    (theirs / "sitecustomize.py").write_text(OTHER_CLOCK)
    (theirs / "keras-3.1.0.dist-info").mkdir()
    (theirs / "keras-3.1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: keras\nVersion: 3.1.0\n")
    return python


@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_faults_of_real_executors_are_found(faulty_python, spark, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(faulty_python))
    monkeypatch.setenv("TFOS_SERVER_HOST", "127.0.0.2")  # the driver listens on 127.0.0.1 only
    findings = doctor_finds()
    executor = next(finding for what, finding in findings.items() if what.startswith("executor"))
    assert "lacks tensorflow" in executor.found
    assert "its keras is 3.1.0, and this is 3.15" in executor.found
    assert "s ahead" in findings["clocks"].found
    assert "cannot connect to 127.0.0.2:" in findings["way back"].found
    assert findings["shared folder"].ok
