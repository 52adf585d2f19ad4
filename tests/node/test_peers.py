"""Whether a node reaches its peers."""

from __future__ import annotations

import pytest

from tfos_lab.errors import ConfigError
from tfos_lab.node import peers


def test_a_peer_that_refuses_is_reached_and_this_host_s_are_not_asked(monkeypatch):
    asked = []
    monkeypatch.setattr(peers, "_why_not", lambda address, _deadline: asked.append(address) or "")
    spec = {"chief": ["10.0.0.1:1"], "worker": ["127.0.0.1:2", "10.0.0.3:3"], "evaluator": ["10.0.0.4:4"]}
    peers.require_peers(spec, "worker", 0)
    assert sorted(asked) == ["10.0.0.1:1", "10.0.0.3:3"]
    monkeypatch.undo()
    assert peers._why_not("127.0.0.1:1", 0.0) == ""


def test_a_peer_that_cannot_be_reached_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setattr(peers, "_PATIENCE_S", 0.2)
    with pytest.raises(
        ConfigError, match=r"chief:0 on .* cannot connect to worker:0 at 255\.255\.255\.255:1 \(.+\)\. Open"
    ):
        peers.require_peers({"chief": ["10.0.0.1:1"], "worker": ["255.255.255.255:1"]}, "chief", 0)
