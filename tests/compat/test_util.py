"""`util`: the environment of a process that runs TensorFlow by itself, and small helpers."""

from __future__ import annotations

import ipaddress
import os
import socket

import pytest

from tfos_lab.compat import gpu_info, util


@pytest.fixture
def environment(monkeypatch):
    for name in ("HADOOP_PREFIX", "CLASSPATH", "CUDA_VISIBLE_DEVICES", "TFOS_CLASSPATH_UPDATED"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return monkeypatch


def test_an_address_of_this_host_is_found():
    assert ipaddress.ip_address(util.get_ip_address())


def test_an_address_is_found_without_a_way_to_elsewhere(monkeypatch):
    monkeypatch.setattr(util, "_ELSEWHERE", ("not.an.address.invalid", 9))
    found = [(None, None, None, None, (address, 0)) for address in ("127.0.1.1", "10.1.2.3")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: found)
    assert util.get_ip_address() == "10.1.2.3"
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: found[:1])
    assert util.get_ip_address() == "127.0.0.1"


def test_a_file_is_found_in_a_search_path(tmp_path):
    (tmp_path / "b" / "bin").mkdir(parents=True)
    (tmp_path / "b" / "bin" / "tool").write_text("")
    path = f"{tmp_path}/a{os.pathsep}{tmp_path}/b"
    assert util.find_in_path(path, "bin/tool") == f"{tmp_path}/b/bin/tool"
    assert util.find_in_path(path, "bin") is False


def test_an_executors_number_is_kept_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match="no file executor_id"):
        util.read_executor_id()
    util.write_executor_id(3)
    assert util.read_executor_id() == 3


def test_without_gpus_none_is_visible(environment):
    environment.setattr(gpu_info, "is_gpu_available", lambda: False)
    util.single_node_env()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    ("nodes", "index", "expected"), [([], 2, 2), (["a:1", "b:1", "a:2"], 2, 1), (["a:1", "ab:1"], 1, 0), ([], -1, -1)]
)
def test_the_gpus_of_a_host_are_divided_among_its_nodes(environment, nodes, index, expected):
    asked = []
    environment.setattr(gpu_info, "is_gpu_available", lambda: True)
    environment.setattr(gpu_info, "get_gpus", lambda *arguments: asked.append(arguments) or "1")
    util.single_node_env(1, index, nodes)
    assert (asked, os.environ["CUDA_VISIBLE_DEVICES"]) == ([(1, expected)], "1")


def test_hadoops_classpath_is_expanded_once(environment, tmp_path):
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "hadoop"
    tool.write_text('#!/bin/sh\necho "expanded:$*"\n')
    tool.chmod(0o755)
    environment.setenv("HADOOP_PREFIX", str(tmp_path))
    environment.setattr(gpu_info, "is_gpu_available", lambda: False)
    for _ in range(2):
        util.single_node_env()
    assert os.environ["CLASSPATH"] == "expanded:classpath --glob"
    assert os.environ["TFOS_CLASSPATH_UPDATED"] == "1"
