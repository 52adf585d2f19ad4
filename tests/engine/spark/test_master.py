"""Whether the master of a standalone cluster answers, with sockets in its place."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tests.support.fake_nodes import until
from tfos_lab.engine.spark import master
from tfos_lab.engine.spark.master import MasterWatch, lost_master_at


@pytest.fixture
def place(monkeypatch):
    """A port of this machine that nobody listens at yet, held so that nobody else gets it."""
    monkeypatch.setattr(master, "_answered", set())
    monkeypatch.setattr(master, "_ANSWER_S", 0.1)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder


def url_of(*places):
    return "spark://" + ",".join(f"127.0.0.1:{place.getsockname()[1]}" for place in places)


def test_a_master_that_answers_is_not_lost(place):
    place.listen()
    assert lost_master_at(url_of(place)) == ""


def test_a_master_that_does_not_answer_is_named_with_what_follows(place):
    url = url_of(place)
    assert lost_master_at(url) == (
        f"Spark's master at {url} does not answer (Connection refused): what runs goes on, but Spark starts no "
        "executor until the master is back"
    )


def test_one_that_has_answered_and_says_nothing_any_more_is_lost_and_one_that_closes_is_not(place):
    place.listen()
    url = url_of(place)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lost_master_at, url)
        place.accept()[0].close()
        assert asked.result() == ""
    assert "(it takes connections and says nothing, as a process that is stopped or hangs)" in lost_master_at(url)


def test_one_master_of_several_is_enough(place):
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert lost_master_at(url_of(place, other)) == ""


@pytest.mark.parametrize("url", ["local[2]", "k8s://https://host:6443", "yarn", "", "spark://nonsense"])
def test_only_standalone_clusters_have_such_a_master(url):
    assert lost_master_at(url) == ""


def test_its_loss_and_its_return_are_told_once_each(place, monkeypatch):
    monkeypatch.setattr(master, "_POLL_S", 0.01)
    told = []
    session = SimpleNamespace(sparkContext=SimpleNamespace(master=url_of(place)))
    watch = MasterWatch("c", session, told.append)
    watch.start()
    until(lambda: told)
    place.listen()
    until(lambda: len(told) == 2)
    watch.close()
    watch.join(60)
    assert ["does not answer" in told[0], "answers again" in told[1], len(told)] == [True, True, 2]
