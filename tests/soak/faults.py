"""What goes wrong in a soak, at a random moment: the faults of the table that may happen to any cluster.

Nobody lets a stopped process go on: what is stopped is ended by those who miss it.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator

import psutil

from tests.faults import table  # noqa: F401 - it declares its faults
from tests.faults.declare import FAULTS as DECLARED
from tests.faults.declare import Fault
from tests.faults.scene import Scene, agents_of
from tests.soak.rounds import PATIENCE_S, Round

FAULTS = tuple(fault for fault in DECLARED if fault.chaos)


class RoundScene(Scene):
    """The cluster of a round, which runs: a fault is done to any of its nodes."""

    def __init__(self, game: Round) -> None:
        super().__init__(None, game.stage.folder, spark=game.stage.spark)
        self.cluster, self.rng = game.cluster, game.rng

    def run(self, *_args, **_options):
        return self.cluster

    def child(self, _node):
        return psutil.Process(self.rng.choice([view.pid for view in self.cluster.nodes if view.pid]))

    def agent(self, _node):
        return self.rng.choice(list(agents_of(self.cluster.id).values()))


@contextlib.contextmanager
def done_to(game: Round, fault: Fault, rng: random.Random) -> Iterator[None]:
    """Do a fault to a cluster at a random moment of the block; the block may end before."""
    over, moment_s = threading.Event(), rng.uniform(0.0, 0.8)

    def work() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not over.is_set() and time.monotonic() < deadline:
            if all(view.pid for view in game.cluster.nodes):
                over.wait(moment_s)
                if not over.is_set():
                    with contextlib.suppress(psutil.NoSuchProcess, IndexError, ProcessLookupError):
                        fault.chaos(RoundScene(game))
                return
            time.sleep(0.005)

    thread = threading.Thread(target=work, name=f"fault-{fault.do.__name__}")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
