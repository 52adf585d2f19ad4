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


def wait_until(holds, work):
    deadline = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < deadline:
        work()
    assert holds()


def test_python_and_its_steps_are_seen(sampled):
    def work():
        STEPS.take_batch()
        time.sleep(0.02)

    wait_until(lambda: len(sampled) > 1 and sampled[-1].python > 0.9 and sampled[-1].step > 5, work)
    assert sampled[-1].rank == 3
    assert 0.01 < sampled[-1].step_s < 1.0
    assert "test_sampler.py" in sampled[-1].where
    assert sampled[-1].rows_s > 0


def test_waiting_for_rows_is_seen(sampled):
    queue, feed = FeedQueue(), NodeFeed(0, 1, "exact", ())
    wait_until(
        lambda: sampled and sampled[-1].waits_rows > 0.8,
        lambda: queue.holds(feed, lambda: False, 0.05),
    )
    figures = sampled[-1]
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
