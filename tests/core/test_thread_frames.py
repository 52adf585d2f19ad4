"""`tfos_lab.core.thread_frames`: nothing collects garbage while frames of other threads are looked at."""

from __future__ import annotations

import contextlib
import gc
import threading

import pytest

from tfos_lab.core.thread_frames import frames_of_threads, outwards


def test_each_other_thread_has_its_frames_from_the_innermost_outwards():
    ready, over = threading.Event(), threading.Event()

    def wait_in_thread():
        ready.set()
        over.wait()

    thread = threading.Thread(target=wait_in_thread)
    thread.start()
    ready.wait()
    with frames_of_threads() as frames:
        found = [frame.f_code.co_name for frame in outwards(frames[thread.ident])]
        assert threading.get_ident() not in frames
    over.set()
    thread.join()
    assert "wait_in_thread" in found


@pytest.mark.parametrize("collects", [True, False])
def test_nothing_is_collected_within_the_block_and_it_is_then_as_before(collects):
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with contextlib.suppress(ZeroDivisionError), frames_of_threads():
            assert not gc.isenabled()
            _ = 1 / 0
        assert gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()
