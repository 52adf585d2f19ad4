"""What Spark is asked, with sockets in a server's place."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace

import pytest

from tfos_lab.engine.spark import servers, waiting
from tfos_lab.engine.spark.waiting import end_without_lost_server, while_server_answers
from tfos_lab.errors import NoSession


@pytest.fixture
def place(monkeypatch):
    """A port that refuses connections until somebody listens there."""
    monkeypatch.setattr(waiting, "_POLL_S", 0.01)
    for name in servers._PROXIES:
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder


@pytest.fixture
def policies():
    """What pyspark goes by when it asks again."""
    return [SimpleNamespace(max_retries=15)]


@pytest.fixture
def session(place, policies):
    """What a session of Spark Connect at that port knows of its server."""
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    session.client = SimpleNamespace(get_retry_policies=lambda: policies)
    endpoint = f"127.0.0.1:{place.getsockname()[1]}"
    session._client = SimpleNamespace(
        _builder=SimpleNamespace(host="127.0.0.1", endpoint=endpoint, use_ssl=False, secure=False)
    )
    return session


def test_a_server_that_is_lost_is_neither_waited_for_nor_asked_again(session, policies):
    never = threading.Event()
    try:
        with pytest.raises(
            NoSession, match=r"the Spark Connect server at sc://127.* \(Connection refused\)\. Start it"
        ):
            while_server_answers(session, never.wait, name="asking")
    finally:
        never.set()
    assert [policy.max_retries for policy in policies] == [0]


def test_what_has_been_asked_is_done_and_its_error_raised(session):
    def ask():
        assert threading.current_thread().name == "asking"
        raise ValueError("by Spark")

    with pytest.raises(ValueError, match="by Spark"):
        while_server_answers(session, ask, name="asking")


def test_an_answer_is_returned(session, policies):
    assert while_server_answers(session, lambda: 5, name="asking") == 5
    assert [policy.max_retries for policy in policies] == [15]


def test_a_classic_session_is_asked_on_this_thread():
    asked = []
    while_server_answers(SimpleNamespace(), lambda: asked.append(threading.current_thread()), name="asking")
    assert asked == [threading.current_thread()]


@pytest.mark.parametrize("is_lost", [True, False])
def test_when_python_ends_the_clients_of_lost_servers_are_closed_and_no_others(session, place, monkeypatch, is_lost):
    closed, at_exit = [], []
    session.client = SimpleNamespace(close=lambda: closed.append(session))
    monkeypatch.setattr(waiting, "_asked", set())
    monkeypatch.setattr(waiting.atexit, "register", at_exit.append)
    for asked in (session, session, SimpleNamespace()):
        end_without_lost_server(asked)
    if not is_lost:
        place.listen()
    (at_exit,) = at_exit
    at_exit()
    assert closed == [session] * is_lost
