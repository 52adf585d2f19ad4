"""Whether servers answer, with sockets in their place."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from tfos_lab.engine.spark import probe
from tfos_lab.engine.spark.probe import SILENT, TIMED_OUT, KeptConnection, has_answered, why_lost


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(probe, "_answered", set())
    monkeypatch.setattr(probe, "SILENCE_S", 0.3)
    monkeypatch.setattr(probe, "_AGAIN_S", 0.1)
    monkeypatch.setattr(probe, "_TICK_S", 0.01)


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def ask(*servers):
    return why_lost([server.getsockname() for server in servers], lambda _host: b"?")


def answer(server, *which):
    """Answer one connection's question after another where ``which`` is true, on a thread."""

    def serve():
        with ExitStack() as stack:
            for is_answered in which:
                connection = stack.enter_context(server.accept()[0])
                assert connection.recv(1) == b"?"
                if is_answered:
                    connection.sendall(b"!")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def test_who_answers_is_not_lost_and_is_remembered(server, monkeypatch):
    monkeypatch.setattr(probe, "SILENCE_S", 60.0)
    answering = answer(server, True)
    assert ask(server) == ""
    answering.join()
    assert has_answered(server.getsockname())


def test_who_takes_connections_and_says_nothing_is_lost_if_it_has_answered_before(server):
    assert ask(server) == "", "it may be no such server, but what stands before it"
    probe._answered.add(server.getsockname())
    assert ask(server) == SILENT


def test_a_second_connection_is_enough(server):
    probe._answered.add(server.getsockname())
    probe.SILENCE_S = 60.0
    answering = answer(server, False, True)
    assert ask(server) == ""
    answering.join()


def test_who_takes_no_connections_is_lost():
    with socket.socket() as full, ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(2):
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0)
            waiting.connect_ex(full.getsockname())
        assert ask(full) == TIMED_OUT


def test_time_in_which_this_process_did_not_run_does_not_count(server, monkeypatch):
    probe._answered.add(server.getsockname())
    jumps = itertools.count(step=60)
    monkeypatch.setattr(probe, "time", SimpleNamespace(monotonic=lambda: next(jumps)))
    ticks = []
    poll = probe.select.poll

    class Counted:
        def __init__(self):
            self._poll = poll()

        def __getattr__(self, name):
            return getattr(self._poll, name)

        def poll(self, timeout_ms):
            ticks.append(timeout_ms)
            return self._poll.poll(timeout_ms)

    monkeypatch.setattr(probe, "select", SimpleNamespace(poll=Counted, POLLIN=1, POLLOUT=4))
    assert ask(server) == SILENT
    assert len(ticks) >= probe.SILENCE_S / probe._TICK_S


def test_who_answers_is_asked_again_on_the_same_connection_for_as_long_as_it_answers(server, monkeypatch):
    with socket.socket() as refusing, contextlib.closing(KeptConnection([], b"?")) as nobody:
        refusing.bind(("127.0.0.1", 0))
        places = [refusing.getsockname(), server.getsockname()]
        with ThreadPoolExecutor(1) as pool, contextlib.closing(KeptConnection(places, b"?")) as kept:
            for _ in range(2):
                monkeypatch.setattr(probe, "_PROMPT_S", 60.0)
                asked = pool.submit(kept.answers)
                with server.accept()[0] as connection:
                    for _ in range(3):
                        assert connection.recv(1) == b"?"
                        connection.sendall(b"!")
                        assert asked.result()
                        asked = pool.submit(kept.answers)
                    assert connection.recv(1) == b"?"
                    monkeypatch.setattr(probe, "_PROMPT_S", 0.3)
                    connection.shutdown(socket.SHUT_RDWR)
                    assert not asked.result(), "nobody answers a new connection either"
                server.accept()[0].close()
        assert not nobody.answers()
    assert has_answered(server.getsockname())
    assert not has_answered(places[0])


def test_who_refuses_is_lost_at_once_and_one_of_several_is_enough(server):
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        assert ask(refusing) == "Connection refused"
        answering = answer(server, True)
        assert ask(refusing, server) == ""
        answering.join()
    assert ask() == ""


def test_a_name_that_nobody_has_is_told(monkeypatch):
    def unknown(*_place, **_options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(probe.socket, "getaddrinfo", unknown)
    assert why_lost([("nobody.invalid", 1)], lambda _host: b"?") == "Name or service not known"
