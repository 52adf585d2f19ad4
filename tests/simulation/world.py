"""Time, chance and the network: what happens next, in an order that follows from a seed."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

# Where it begins, in seconds since the epoch.
EPOCH_S = 1_000_000.0


class World:
    """A clock that jumps from one event to the next, in place of the module `time` where the product asks for the time.

    All chance comes from ``rng``; ``story`` is what has happened: when, to whom, what.
    """

    def __init__(self, seed: int) -> None:
        self.now_s = EPOCH_S
        self.rng = random.Random(seed)
        self.story: list[tuple[float, str, object]] = []
        self._queue: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._numbers = itertools.count()

    def time(self) -> float:
        """Return the time, as `time.time` does."""
        return self.now_s

    def monotonic(self) -> float:
        """Return the time, as `time.monotonic` does."""
        return self.now_s

    def tell(self, who: str, what: object) -> None:
        """Add to the story; ``what`` is turned into text only if somebody reads it."""
        self.story.append((self.now_s, who, what))

    def at(self, delay_s: float, act: Callable[..., object], *args: Any) -> None:
        """Have something happen later."""
        heapq.heappush(self._queue, (self.now_s + delay_s, next(self._numbers), act, args))

    def between(self, least_s: float, most_s: float) -> float:
        """Return a random time."""
        return least_s + (most_s - least_s) * self.rng.random()

    def wait(self, until_s: float, is_over: Callable[[], object]) -> None:
        """Let time pass until something is over, or until then."""
        queue = self._queue
        while not is_over():
            if not queue or queue[0][0] > until_s:
                self.now_s = max(self.now_s, until_s)
                return
            at_s, _, act, args = heapq.heappop(queue)
            self.now_s = at_s
            act(*args)

    def text(self) -> str:
        """Return the story, one line for each event."""
        return "\n".join(f"{at_s - EPOCH_S:8.3f}  {who:12} {_text(what)}" for at_s, who, what in self.story)


def _text(what: object) -> str:
    text = what if isinstance(what, str) else repr(what)
    return text if len(text) <= 200 else f"{text[:200]}…"


class Host:
    """A machine with nodes, as the driver reaches it: messages take a while, and longer where it is slow or cut off."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.cut_until_s = self.slow_until_s = 0.0
        self._world = world

    @property
    def is_cut(self) -> bool:
        """Whether nothing gets through now."""
        return self._world.now_s < self.cut_until_s

    def arrival_s(self) -> float:
        """Return when something arrives that is sent now."""
        world = self._world
        takes_s = world.between(0.5, 2.0) if world.now_s < self.slow_until_s else world.between(0.001, 0.03)
        return max(world.now_s, self.cut_until_s) + takes_s


class Link:
    """One direction of a connection: what is sent arrives, in its order, however late."""

    def __init__(self, world: World, host: Host, deliver: Callable[[Any], object]) -> None:
        self._world = world
        self._host = host
        self._deliver = deliver
        self._last_s = 0.0

    def send(self, item: object) -> None:
        self._last_s = max(self._host.arrival_s(), self._last_s)
        self._world.at(self._last_s - self._world.now_s, self._deliver, item)
