"""Waiting for a fact, the only way in which tests wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Long enough for any machine: only a fault of the product, or of the test, uses it up.
PATIENCE_S = 60


def eventually(fact: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """Call `fact` until what it returns is true, and return that; fail with what it returned last.

    An ``AssertionError`` of `fact` means "not yet", and is what the test fails with in the end.
    """
    deadline = time.monotonic() + patience_s
    while True:
        began = time.monotonic()
        try:
            if value := fact():
                return value
            failure = AssertionError(f"it never became true: {fact.__qualname__} returned {value!r}")
        except AssertionError as error:
            failure = error
        now = time.monotonic()
        if now > deadline:
            raise failure
        time.sleep(min(max(0.02, 5 * (now - began)), 1.0))  # what is asked has work of its own to do
