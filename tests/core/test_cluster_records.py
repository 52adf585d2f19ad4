"""The records of live clusters: only valid ones of the user's own live processes are found."""

import os
import subprocess
import sys

import msgspec
import pytest

from tests.support.eventually import eventually
from tfos_lab.core import cluster_records


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.delenv("JUPYTERHUB_SERVICE_PREFIX", raising=False)
    return tmp_path / "runtime"


def record(**changes):
    pid = os.getpid()
    known = {"id": "mnist-1", "pid": pid, "run_dir": "runs/mnist-1"}
    return cluster_records.ClusterRecord(**{**known, "born": cluster_records.birth_of(pid), **changes})


def test_all_clusters_are_found_by_nobody_else(runtime):
    cluster_records.publish(record(id="größe-数字-1"))
    cluster_records.publish(record(id="a"))
    assert {found.id for found in cluster_records.find_all()} == {"größe-数字-1", "a"}
    assert cluster_records.find("a") == record(id="a")
    assert (runtime / "tfos").stat().st_mode & 0o777 == 0o700
    assert (runtime / "tfos" / "a.json").stat().st_mode & 0o777 == 0o600


def test_records_of_a_dead_process_and_of_one_whose_number_another_has_are_removed(runtime):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        cluster_records.publish(record(pid=process.pid, born=cluster_records.birth_of(process.pid)))
        assert cluster_records.find("mnist-1") is not None
        process.kill()
        # Its parent has not taken note yet.
        eventually(lambda: cluster_records.find("mnist-1") is None)
        assert process.returncode is None
    cluster_records.publish(record(born="long ago"))
    assert cluster_records.find_all() == []
    assert list((runtime / "tfos").iterdir()) == []


@pytest.mark.parametrize("name", ["../jpserver-1", "a/b", "", ".", "x" * 300, "mnist-1\n"])
def test_an_invalid_id_finds_nothing(name):
    cluster_records.publish(record())
    assert cluster_records.find(name) is None


def test_a_record_in_a_file_of_another_name_is_ignored():
    cluster_records.publish(record())
    (cluster_records.folder() / "mnist-1.json").rename(cluster_records.folder() / "other.json")
    assert cluster_records.find_all() == []


def test_a_folder_that_others_can_write_to_is_not_trusted(runtime):
    cluster_records.publish(record())
    (runtime / "tfos").chmod(0o777)
    assert cluster_records.find_all() == []
    assert cluster_records.find("mnist-1") is None
    with pytest.raises(PermissionError, match="can be opened by others"):
        cluster_records.publish(record())


def test_a_kernel_knows_its_server_if_that_has_our_extension(runtime, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["ipykernel_launcher.py", "-f", "/run/kernel-1234-abcd.json"])
    assert cluster_records.own_kernel_id() == "1234-abcd"
    monkeypatch.setenv("JPY_PARENT_PID", str(os.getpid()))
    server = {"url": "http://127.0.0.1:8888/user/alice/", "base_url": "/user/alice/", "token": "t"}
    runtime.mkdir()
    (runtime / f"jpserver-{os.getpid()}.json").write_bytes(msgspec.json.encode(server))
    assert cluster_records.own_server_url() == ""
    cluster_records.announce_server()
    assert cluster_records.own_server_url() == "http://127.0.0.1:8888/user/alice/"
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/alice/")
    assert cluster_records.own_server_url() == "/user/alice/"
    (runtime / "tfos" / f"{os.getpid()}.server").write_text("another process of that number")
    assert cluster_records.own_server_url() == ""
