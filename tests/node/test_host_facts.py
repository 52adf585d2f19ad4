"""What an executor reports to the doctor."""

from __future__ import annotations

import socket

import pyarrow as pa
import pytest

from tfos_lab.engine.doctor.facts import decode_facts
from tfos_lab.node import host_facts


@pytest.fixture
def ask(monkeypatch):
    """Ask this host, without warming anything; returns what the driver makes of the answer."""
    installed = {"host": "h", "executor": "1", "python": "3.11", "missing": "", "platform": "", "environment": ""}
    monkeypatch.setattr(host_facts, "inspect_and_warm", lambda _owner, _env: {**installed, "gpus": ""})

    def ask(**questions):
        given = {"host": "", "port": 0, "token": "", "probe": "", **questions}
        [batch] = host_facts.host_facts_task(iter([pa.record_batch({"id": [1]})]), "owner", given)
        return decode_facts(batch.to_pylist()[0]["facts"])

    return ask


def test_it_reports_what_it_has(ask):
    facts = ask()
    assert (facts.host, facts.executor, facts.python, facts.unreachable) == ("h", "1", "3.11", "")
    assert facts.clock_s > 1e9
    assert facts.versions["tensorflow"].startswith("2.")


def test_it_looks_for_the_file_in_the_run_folder(ask, tmp_path):
    probe = tmp_path / ".probe"
    assert not ask(probe=str(probe)).sees_probe
    probe.touch()
    assert ask(probe=str(probe)).sees_probe


def test_it_reports_the_space_in_shared_memory(ask, monkeypatch, tmp_path):
    monkeypatch.setattr(host_facts, "_SHARED_MEMORY", str(tmp_path))
    assert ask().shared_memory_bytes > 0
    monkeypatch.setattr(host_facts, "_SHARED_MEMORY", str(tmp_path / "none"))
    assert ask().shared_memory_bytes is None


def test_it_tries_the_way_to_the_driver(ask):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    assert ask(host="127.0.0.1", port=port, token="t").unreachable == "Connection refused"
    assert ask(host="127.0.0.1", port=port).unreachable == "", "it was not asked"
