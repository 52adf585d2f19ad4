"""A large payload on a node's host: one agent fetches it, the others use its file, and nothing of it remains."""

from __future__ import annotations

import os
import time

import pytest

from tests.node.conftest import start_for
from tfos_lab import messages as m
from tfos_lab.engine.payloads import PayloadSender
from tfos_lab.messages.payload import PIECE_BYTES
from tfos_lab.node import payload_file
from tfos_lab.node.payload_file import PayloadFile, payload_of
from tfos_lab.payload.packing import pack, unpack

PAYLOAD = pack(print, os.urandom(7 * PIECE_BYTES))


class Host:
    """Agents of one host, and the driver that they ask."""

    def __init__(self, root):
        self.root = root
        self.driver = PayloadSender(PAYLOAD)
        self.start = self.driver.add_to(start_for(print, payload=b""))
        self.asked, self.ready, self.problems = [], {}, {}

    def agent(self, rank):
        scratch = self.root / f"c-{rank}-{os.getpid()}"
        scratch.mkdir()
        return PayloadFile(
            rank,
            scratch,
            self.asked.append,
            on_ready=lambda start: self.ready.__setitem__(rank, start),
            on_problem=lambda problem: self.problems.__setitem__(rank, problem),
        )

    def answer(self, agents, *, alter=lambda piece: piece, at_most=1000):
        """Answer questions until there are none."""
        while self.asked and (at_most := at_most - 1) >= 0:
            for instruction in self.driver.handle(self.asked.pop(0), 0.0):
                agents[instruction.rank].handle(alter(instruction.message))

    def files(self):
        return sorted(path.name for path in self.root.iterdir() if path.is_file())


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_one_agent_fetches_it_and_the_others_use_its_file(host):
    agents = [host.agent(rank) for rank in range(3)]
    for agent in agents:
        agent.handle(host.start)
    assert {question.rank for question in host.asked} == {0}
    assert all(agent.is_awaited for agent in agents)
    host.answer(agents)
    for agent in agents[1:]:
        agent.tick(time.monotonic())
    assert {start.payload_file for start in host.ready.values()} == {str(host.root / host.files()[0])}
    assert {payload_of(start)[:] for start in host.ready.values()} == {PAYLOAD}
    assert unpack(payload_of(host.ready[2]))[0] is print


def test_the_last_agent_that_ends_removes_the_file(host):
    agents = [host.agent(rank) for rank in range(2)]
    for agent in agents:
        agent.handle(host.start)
    host.answer(agents)
    agents[1].tick(time.monotonic())
    agents[0].close()
    assert len(host.files()) == 1
    agents[1].close()
    agents[1].close()
    assert host.files() == []


def test_another_agent_takes_over_from_one_that_ends_half_way(host):
    first, second = agents = [host.agent(rank) for rank in range(2)]
    for agent in agents:
        agent.handle(host.start)
    host.answer(agents, at_most=3)
    first.close()
    host.asked.clear()
    second.tick(time.monotonic())
    host.answer(agents)
    assert payload_of(host.ready[1])[:] == PAYLOAD
    second.close()
    assert host.files() == []


def test_pieces_that_were_lost_are_asked_for_again(host):
    agent = host.agent(0)
    agent.handle(host.start)
    host.answer([agent], at_most=3)
    host.asked.clear()
    agent.tick(time.monotonic() + 60.0)
    host.answer([agent])
    assert payload_of(host.ready[0])[:] == PAYLOAD


def test_a_payload_that_changes_on_its_way_is_refused(host):
    agent = host.agent(0)
    agent.handle(host.start)
    host.answer([agent], alter=lambda piece: m.PayloadPiece(piece.offset, bytes(len(piece.data))))
    assert "it has changed on its way; capture less" in host.problems[0]
    assert host.files() == []
    assert not host.ready


def test_a_full_disk_is_named_with_the_size(host, monkeypatch):
    agent = host.agent(0)
    agent.handle(host.start)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", fail)
    host.answer([agent])
    assert host.problems[0].startswith("the function and its arguments (2 MB) cannot be kept in ")
    assert "No space left on device; capture less, feed the rows" in host.problems[0]
    assert host.files() == []


def test_what_killed_agents_have_left_is_removed(host, monkeypatch):
    (host.root / "payload-old-123").write_bytes(b"x")
    monkeypatch.setattr(payload_file, "_YOUNG_S", -1.0)
    host.agent(0).handle(host.start)
    assert "payload-old-123" not in host.files()


def test_a_small_payload_needs_no_file(host):
    agent, start = host.agent(0), start_for(print)
    agent.handle(start)
    assert host.ready[0] is start
    assert payload_of(start) == start.payload
