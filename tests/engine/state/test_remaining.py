"""Who is still to come, asked for each of many nodes."""

from __future__ import annotations

from tfos_lab.engine.state.remaining import Remaining


def test_it_holds_until_the_last_one_has_come():
    coming = {0, 1, 2}
    remaining = Remaining(list(range(3)), lambda item: item in coming)
    assert remaining
    for item in (1, 0):
        coming.remove(item)
        assert remaining
    coming.clear()
    assert not remaining
    coming.add(0)
    assert remaining


def test_all_answers_together_look_at_each_item_a_few_times_only():
    coming, looks = set(range(4096)), 0

    def is_pending(item):
        nonlocal looks
        looks += 1
        return item in coming

    remaining = Remaining(list(range(4096)), is_pending)
    while remaining:
        coming.pop()
    assert looks < 5 * 4096
