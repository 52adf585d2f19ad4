"""A bounded publish-subscribe bus between the driver and its observers.

The driver publishes without waiting; each subscriber takes events as fast as it can. A slow one loses its oldest
events, and can ask how many it has lost.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Self

from tfos_lab.driver.state.events import Event, LogText

# Log text that waits for one subscriber; a node can print faster than a notebook can show it.
MAX_CHARS = 16_000_000


class Subscription:
    """One subscriber's queue of events, bounded in their number and in their text."""

    def __init__(self, bus: Bus, capacity: int) -> None:
        self._bus = bus
        self._events: deque[Event] = deque()
        self._chars = 0
        self._capacity = capacity
        self._lock = threading.Lock()
        self._dropped = 0

    def offer(self, events: Iterable[Event]) -> None:
        """Append events, and drop the oldest ones if the queue is full; for the bus."""
        with self._lock:
            for event in events:
                size = _chars_of(event)
                while self._events and (len(self._events) >= self._capacity or self._chars + size > MAX_CHARS):
                    self._chars -= _chars_of(self._events.popleft())
                    self._dropped += 1
                self._events.append(event)
                self._chars += size

    def take(self) -> list[Event]:
        """Return the events that have come since the last call, oldest first."""
        with self._lock:
            events, self._chars = list(self._events), 0
            self._events.clear()
            return events

    def take_dropped(self) -> int:
        """Return how many events were lost since the last call."""
        with self._lock:
            dropped, self._dropped = self._dropped, 0
            return dropped

    def close(self) -> None:
        """Unsubscribe; may be called twice."""
        self._bus.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _chars_of(event: Event) -> int:
    return len(event.text) if isinstance(event, LogText) else 0


class Bus:
    """Hands each event to every subscription, in the order of publishing.

    ``tap`` gets them first, from the thread that publishes them: at once those that are published together.
    """

    def __init__(self, tap: Callable[..., None]) -> None:
        self._tap = tap
        self._lock = threading.Lock()
        self._subscriptions: list[Subscription] = []

    def subscribe(self, capacity: int = 10_000) -> Subscription:
        """Return a new subscription that holds at most ``capacity`` events."""
        subscription = Subscription(self, capacity)
        with self._lock:
            self._subscriptions.append(subscription)
        return subscription

    def publish(self, *events: Event) -> None:
        """Offer events to every subscription; never blocks."""
        if not events:
            return
        self._tap(*events)
        with self._lock:
            for subscription in self._subscriptions:
                subscription.offer(events)

    def forget(self, subscription: Subscription) -> None:
        """Remove a subscription."""
        with self._lock:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
