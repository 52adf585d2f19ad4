"""`tfos_lab.core.threads`: nothing collects garbage while frames of other threads are looked at."""

import contextlib
import gc

import pytest

from tfos_lab.core.threads import frames_of_threads


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
