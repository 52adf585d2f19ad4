"""The sampler sees what the thread that started it spends its time with."""

from __future__ import annotations

import random
import threading
import time

import pytest

from tfos_lab.node.activity import sampler
from tfos_lab.node.activity.sampler import ActivitySampler
from tfos_lab.node.activity.steps import STEPS
from tfos_lab.node.feed.feed_queue import FeedQueue
from tfos_lab.node.feed.node_feed import NodeFeed

PATIENCE_S = 60.0


@pytest.fixture
def sampled(monkeypatch):
    """Give what a sampler of this thread sends."""
    monkeypatch.setattr(sampler, "REPORT_S", 0.1)
    monkeypatch.setattr(sampler, "SAMPLE_S", 0.005)
    sent = []
    watching = ActivitySampler(3, sent.append, lambda: 1000 * len(sent))
    watching.start()
    yield sent
    watching.stop()
    assert not any(thread.name == "tfos-activity" for thread in threading.enumerate())


def wait_until(asked, work):
    """Give the first true answer of ``asked``, with ``work`` between."""
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := asked()) and time.monotonic() < deadline:
        work()
    assert answer
    return answer


def last_that(holds, sampled, after=0):
    """Ask for the last sample behind ``after``, once it ``holds``."""
    return lambda: next((figures for figures in sampled[after:][-1:] if holds(figures)), None)


def test_python_and_its_steps_are_seen(sampled):
    def work():
        STEPS.take_batch()
        time.sleep(0.02)

    figures = wait_until(last_that(lambda last: last.python > 0.9 and last.step > 5, sampled, after=1), work)
    assert figures.rank == 3
    assert 0.01 < figures.step_s < 1.0
    assert "test_sampler.py" in figures.where
    assert figures.rows_s > 0


def test_waiting_for_rows_is_seen(sampled):
    queue, feed = FeedQueue(), NodeFeed(0, 1, "exact", ())
    figures = wait_until(
        last_that(lambda last: last.waits_rows > 0.8, sampled),
        lambda: queue.holds(feed, lambda: False, 0.05),
    )
    assert figures.waits_rows + figures.waits_data + figures.waits_peers + figures.computes + figures.python == (
        pytest.approx(1.0)
    )


def test_a_sampler_can_be_stopped_without_a_start():
    ActivitySampler(0, print, lambda: 0).stop()


def test_a_function_that_seeds_random_numbers_gets_the_same_ones(sampled):
    random.seed(3)
    expected = [random.random() for _ in range(5)]
    random.seed(3)
    reports = len(sampled)
    wait_until(lambda: len(sampled) > reports + 2, lambda: time.sleep(0.01))
    assert [random.random() for _ in range(5)] == expected
