"""Whether Spark's master or Connect server answers, with sockets in its place."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tests.support.fake_nodes import until
from tfos_lab.engine.spark import probe, servers
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.engine.spark.servers import ADVICE, ServerWatch, lost_connect_server, lost_server, lost_server_at
from tfos_lab.errors import NoSession


@pytest.fixture
def place(monkeypatch):
    """A port of this machine that nobody listens at yet, held so that nobody else gets it."""
    monkeypatch.setattr(probe, "_answered", set())
    monkeypatch.setattr(probe, "SILENCE_S", 0.2)
    monkeypatch.setattr(probe, "_AGAIN_S", 0.1)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder


def url_of(*places):
    return "spark://" + ",".join(f"127.0.0.1:{place.getsockname()[1]}" for place in places)


def test_a_master_that_answers_is_not_lost(place):
    place.listen()
    assert lost_server_at(url_of(place)) == ""


def test_a_master_that_does_not_answer_is_named_with_what_follows(place):
    url = url_of(place)
    assert lost_server_at(url) == (
        f"Spark's master at {url} does not answer (Connection refused): what runs goes on, but Spark starts no "
        "executor until the master is back"
    )


def test_one_that_has_answered_and_says_nothing_any_more_is_lost_and_one_that_closes_is_not(place, monkeypatch):
    silence_s = probe.SILENCE_S
    monkeypatch.setattr(probe, "SILENCE_S", 60.0)
    place.listen()
    url = url_of(place)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lost_server_at, url)
        place.accept()[0].close()
        assert asked.result() == ""
    monkeypatch.setattr(probe, "SILENCE_S", silence_s)
    assert "(it takes connections and says nothing, as a process that is stopped or hangs)" in lost_server_at(url)


def test_one_master_of_several_is_enough(place):
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert lost_server_at(url_of(place, other)) == ""


@pytest.mark.parametrize("url", ["local[2]", "k8s://https://host:6443", "yarn", "", "spark://nonsense"])
def test_only_standalone_clusters_have_such_a_master(url):
    assert lost_server_at(url) == ""


def test_its_loss_and_its_return_are_told_once_each(place, monkeypatch):
    monkeypatch.setattr(servers, "_POLL_S", 0.01)
    told = []
    session = SimpleNamespace(sparkContext=SimpleNamespace(master=url_of(place)))
    watch = ServerWatch("c", session, told.append)
    watch.start()
    until(lambda: told)
    place.listen()
    until(lambda: len(told) == 2)
    watch.close()
    watch.join(60)
    assert ["does not answer" in told[0], "answers again" in told[1], len(told)] == [True, True, 2]


# ---- Spark Connect --------------------------------------------------------------------------------------------------


@pytest.fixture
def session(place, monkeypatch):
    """What a session of Spark Connect at that port knows of its server."""
    for name in servers._PROXIES:
        monkeypatch.delenv(name, raising=False)
    channel = SimpleNamespace(
        host="127.0.0.1", endpoint=f"127.0.0.1:{place.getsockname()[1]}", use_ssl=False, secure=False
    )
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    session._client = SimpleNamespace(_builder=channel)
    session.is_stopped = False
    return session


def where(session):
    return f"the Spark Connect server at sc://{session._client._builder.endpoint} does not answer"


def test_a_connect_server_that_refuses_is_lost_and_so_are_its_session_and_nodes(session):
    lost = f"{where(session)} (Connection refused)"
    assert lost_server(session) == f"{lost}: where it has ended, its nodes end with it; {ADVICE}"
    assert lost_connect_server(session) == spark_session.death_of(session) == lost
    with pytest.raises(NoSession, match=r"\(Connection refused\)\. Start it again, and make another session"):
        spark_session.require_alive(session)


def test_one_that_cannot_be_reached_from_here_may_be_by_way_of_a_proxy(session, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    assert lost_server(session) == ""


def test_one_that_is_silent_is_no_reason_to_give_up_but_not_to_begin(session, place):
    place.listen()
    probe._answered.add(place.getsockname())
    assert lost_server(session).endswith("Spark does nothing else until it is back; if it ends, they end with it")
    assert spark_session.death_of(session) is None
    with pytest.raises(NoSession, match="says nothing"):
        spark_session.require_alive(session)


@pytest.mark.parametrize(
    ("channel", "first"),
    [
        ({"host": "127.0.0.1", "use_ssl": False, "secure": False}, b"PRI * HTTP/2.0"),
        ({"host": "127.0.0.1", "use_ssl": True, "secure": True}, b"\x16\x03\x01"),
        ({"host": "127.0.0.1", "use_ssl": False, "secure": True}, b"\x16\x03\x01"),  # a token
        ({"host": "localhost", "use_ssl": False, "secure": True}, b"PRI * HTTP/2.0"),  # which needs no TLS there
    ],
)
def test_it_is_asked_in_the_words_of_its_clients(session, place, channel, first):
    place.listen()
    vars(session._client._builder).update(channel)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lost_server, session)
        with place.accept()[0] as connection:
            assert connection.recv(len(first)) == first
        assert asked.result() == ""


def test_its_client_is_not_asked_to_cancel_a_job_while_it_is_lost(session, place):
    interrupted = []
    session.interruptTag = interrupted.append
    spark_session.cancel_tagged(session, "tag")
    assert interrupted == []
    place.listen()
    spark_session.cancel_tagged(session, "tag")  # it takes connections, and has never answered
    assert interrupted == ["tag"]


def test_sessions_of_other_ways_to_connect_are_not_watched(session):
    session._client = SimpleNamespace(_builder=object())
    assert lost_server(session) == lost_connect_server(session) == ""


def test_a_lost_connect_server_is_told_and_that_it_is_the_driver(session, place, monkeypatch):
    monkeypatch.setattr(servers, "_POLL_S", 0.01)
    told = []
    watch = ServerWatch("c", session, told.append)
    watch.start()
    until(lambda: told)
    assert watch.has_lost_driver
    assert told[0].startswith(f"T{where(session)[1:]} (Connection refused)")
    watch.close()
    watch.join(60)
