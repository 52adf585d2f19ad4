"""`TFManager`: a process that holds queues and values, for those who know its key."""

from __future__ import annotations

import multiprocessing

import pytest

from tfos_lab.compat import TFManager

KEY = b"a secret"


@pytest.mark.parametrize("mode", ["local", "remote"])
def test_another_process_can_use_its_queues_and_values(mode):
    with TFManager.start(KEY, ["input"], mode) as manager:
        address = ("127.0.0.1", manager.address[1]) if mode == "remote" else manager.address
        other = TFManager.connect(address, "a secret")
        other.set("state", "running")
        assert str(manager.get("state")) == "'running'"
        other.get_queue("input").put({"x": [1, None]})
        queue = manager.get_queue("input")
        assert queue.get(timeout=60) == {"x": [1, None]}
        queue.task_done()
        queue.join()
        assert str(manager.get_queue("output")) == "None"
        assert TFManager.mgr is manager


def test_who_does_not_know_the_key_is_refused():
    with TFManager.start(KEY, []) as manager, pytest.raises(multiprocessing.AuthenticationError):
        TFManager.connect(manager.address, b"another")


def test_an_empty_key_is_refused():
    with pytest.raises(ValueError, match="authkey is empty, and anyone could connect"):
        TFManager.start(b"", [])
