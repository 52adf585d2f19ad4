"""Reading ahead: all items in order, errors where they belong, and threads that end."""

from __future__ import annotations

import threading
import time

import pytest

from tfos_lab.node.feed.files.ahead import read_ahead


def source(*items):
    def read():
        for item in items:
            if isinstance(item, Exception):
                raise item
            yield item

    return read


def there(items):
    """Return the items without None, which stands for a thread that has none yet: it may have only begun."""
    return (item for item in items if item is not None)


def readers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("tfos-files-")]


def wait_until_none_reads():
    deadline = time.monotonic() + 60.0
    while readers() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not readers()


@pytest.mark.parametrize("threads", [1, 3])
def test_items_come_in_order(threads):
    sources = [source(*range(first, first + 20)) for first in range(0, 100, 20)]
    assert list(there(read_ahead(sources, threads))) == list(range(100))
    wait_until_none_reads()


def test_an_error_comes_after_the_items_before_it():
    items = there(read_ahead([source(1, 2), source(3, ValueError("no")), source(4)], 2))
    assert [next(items) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(ValueError, match="no"):
        next(items)
    wait_until_none_reads()


def test_threads_end_when_nobody_reads_on():
    items = read_ahead([source(*range(1000)) for _ in range(3)], 2)
    assert next(there(items)) == 0
    items.close()
    wait_until_none_reads()


def test_none_is_yielded_while_there_is_nothing():
    may_go_on = threading.Event()

    def slow():
        assert may_go_on.wait(60)
        yield 1

    items = read_ahead([slow], 1)
    assert next(items) is None
    may_go_on.set()
    assert list(there(items)) == [1]
