"""``ctx.mgr`` on a node: values as a manager's proxies show them, and queues over the node's feed."""

from __future__ import annotations

import pytest

from tests.compat.support import FakeContext
from tfos_lab.compat.node_manager import NodeManager


@pytest.fixture
def context():
    return FakeContext({"input": [1, None, 2]})


@pytest.fixture
def manager(context):
    return NodeManager(context, ["input", "output", "error"])


def test_a_value_shows_as_a_managers_proxy_does(manager):
    assert str(manager.get("state")) == "'running'"
    assert manager.get("state") == "running"
    manager.set("count", 3)
    assert manager.get("count")._getvalue() == 3
    assert {manager.get("count")} == {3}


def test_the_state_terminating_ends_the_feed(manager, context):
    manager.set("other", "terminating")
    assert not context.stopped
    manager.set("state", "terminating")
    assert context.stopped


def test_rows_come_one_by_one_from_the_queue(manager, context):
    queue = manager.get_queue("input")
    assert [queue.get(), queue.empty(), queue.get(), queue.get(), queue.empty()] == [1, False, None, 2, True]
    queue.task_done()
    manager.get_queue("output").put("result")
    assert context.results == ["result"]


def test_a_queue_that_is_not_there_is_none(manager):
    assert manager.get_queue("images") is None


def test_what_is_put_into_the_error_queue_is_raised(manager):
    manager.raise_error()
    manager.get_queue("error").put("Traceback: of a thread")
    with pytest.raises(RuntimeError, match="Traceback: of a thread"):
        manager.raise_error()
