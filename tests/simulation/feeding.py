"""A modelled feed: the thread that runs it, as `tfos_lab.driver.feed.job` does, and Spark's tasks, which may fail."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tests.simulation.head import Head
from tests.simulation.reading import Row, Stored
from tfos_lab.core import messages as m
from tfos_lab.driver.feed.job import OPEN_TIMEOUT_S

if TYPE_CHECKING:
    from tests.simulation.agents import Agent
    from tests.simulation.run import Run

_STEP_S = 0.1
_CAUSE_PATIENCE_S = 6.0
_COMMIT_TIMEOUT_S = 60.0
# Spark gives a job up with the fourth failure of one of its tasks.
_ATTEMPTS = 4
# A task waits for so long for a node that does not answer.
_STORE_S = 20.0


class FeedJob:
    """The feed of one head: all rows of the plan, once; ``problem`` is what must not go wrong, whatever happens."""

    def __init__(self, run: Run, head: Head) -> None:
        self.problem = ""
        self.is_complete = self.is_cut = False
        self._run, self._head, self._world = run, head, run.world
        plan = run.plan
        cuts = sorted(self._world.rng.randint(0, plan.rows) for _ in range(plan.partitions - 1))
        edges = [0, *cuts, plan.rows]
        self.partitions: list[list[Row]] = [
            [(number, index) for index in range(stop - start)]
            for number, (start, stop) in enumerate(itertools.pairwise(edges))
        ]
        self._produced: dict[int, int] = {}
        self._failures: dict[int, int] = {}
        self._numbers = 0
        self._befallen: list[str] = []
        self._error_s: float | None = None
        self._patience = head.feed_state.patience(_COMMIT_TIMEOUT_S, rows=True)
        self._step = self._await_readers
        self._world.at(_STEP_S, self._poll)

    def befall(self, kind: str) -> bool:
        """Have one of the tasks meet a fault; return whether there may still be one."""
        if self._step not in (self._await_readers, self._await_open):
            return False
        self._befallen.append(kind)
        return True

    # ---- the thread of the feed -------------------------------------------------------------------------------------

    def _poll(self) -> None:
        self._run.kernel.call(self._turn)

    def _turn(self) -> None:
        head = self._head
        feed = head.feed_state.current
        if head.is_over or head.state.state.is_ending:
            if feed is not None and feed.state == "open":
                head.request(lambda _now_s: head.feed_state.abort(0, "the run has ended"))
            return
        if self._step():
            self._world.at(_STEP_S, self._poll)

    def _await_readers(self) -> bool:
        feeds = self._head.feed_state
        if feeds.returned:
            self._run.tell_user("ClusterEnded: the cluster is half done")  # who then ends it
            return False
        if self._head.state.state.has_begun and not feeds.undecided:
            message = m.FeedOpen(feed=-1, epochs=1, remainder="spread", schema="", token="")
            self._head.request(lambda _now_s: feeds.open(message))
            self._patience = feeds.patience(OPEN_TIMEOUT_S)
            self._step = self._await_open
        return True

    def _await_open(self) -> bool:
        feed = self._head.feed_state.current
        if feed is not None and not feed.late:
            if self._run.plan.spark:
                self._head.free_slots()
            self._step, self._patience = self._watch, self._head.feed_state.patience(_COMMIT_TIMEOUT_S, rows=True)
            for partition in range(len(self.partitions)):
                self._begin(partition, self._befallen.pop() if self._befallen else "")
        elif self._patience.is_over:
            self._head.fail_feed(0, "nodes did not open their endpoints")
            return False
        return True

    @property
    def _is_unwanted(self) -> bool:
        return self._head.feed_state.stopped_by is not None or bool(self._head.feed_state.returned)

    def _watch(self) -> bool:
        feeds = self._head.feed_state
        if self._is_unwanted:
            self.is_cut = True
            self._head.request(lambda now_s: feeds.cut(0, now_s))
            self._step = self._await_complete
        elif self._error_s is not None:
            if self._world.now_s - self._error_s > _CAUSE_PATIENCE_S:
                self._head.fail_feed(0, "Spark's job has failed")
                return False
        elif len(self._produced) == len(self.partitions):
            rows, partitions = sum(self._produced.values()), len(self.partitions)
            self._head.request(lambda now_s: feeds.job_done(0, rows, partitions, now_s))
            self._step = self._await_complete
        return True

    def _await_complete(self) -> bool:
        feeds = self._head.feed_state
        feed = feeds.current
        assert feed is not None
        if feed.state == "open":
            if self._patience.is_over:
                self._head.fail_feed(0, "rows were stored but not committed")
                return False
            return True
        self.is_complete = feed.state == "complete"
        if feed.total_rows != feed.expected_rows and not self._is_unwanted:
            self.problem = f"Spark produced {feed.expected_rows} rows, {feed.total_rows} were committed"
        self._head.request(lambda _now_s: feeds.end())
        return False

    # ---- Spark's tasks ----------------------------------------------------------------------------------------------

    def _begin(self, partition: int, fault: str) -> None:
        self._numbers += 1
        attempt = f"0.{self._numbers}"
        if fault == "late feed task":
            self._world.at(self._world.between(3.0, 9.0), self._send, partition, attempt, "")
            self._begin(partition, "")  # Spark does not wait for it
            return
        self._world.at(self._world.between(0.02, 0.8), self._send, partition, attempt, fault)

    def _nodes(self) -> list[Agent] | None:
        """Return the agents that take rows, by rank; None if one is gone."""
        feed = self._head.feed_state.current
        assert feed is not None
        pids = {pid for [pid] in feed.locations.values()}
        present = sorted(self._run.present, key=lambda agent: agent.rank)
        here = [agent for agent in present if str(agent.pid) in pids]
        return here if len(here) == len(pids) and self._head is self._run.head else None

    def _send(self, partition: int, attempt: str, fault: str, since_s: float | None = None) -> None:
        """Send the rows of a partition to all nodes, and have the driver asked to commit them."""
        world = self._world
        since_s = world.now_s if since_s is None else since_s
        agents = self._nodes()
        is_early = fault == "lose a feed task" and world.rng.random() < 0.5
        if agents is None or world.now_s - since_s > _STORE_S or is_early:
            self._fail(partition)
            return
        if any(agent.stands or agent.host.is_cut for agent in agents):
            world.at(0.5, self._send, partition, attempt, fault, since_s)
            return
        rows = self.partitions[partition]
        each = len(rows) // len(agents)
        leftover = rows[each * len(agents) :]
        for place, agent in enumerate(agents):
            own = rows[place * each : (place + 1) * each]
            agent.spool.store(0, partition, attempt, Stored(own, leftover, place, len(agents)))
        asker = agents[partition % len(agents)]
        asker.send(
            m.AttemptStored(
                feed=0, partition=partition, attempt=attempt, rows=each, size_bytes=len(rows), leftover=len(leftover)
            )
        )
        if fault == "lose a feed task":
            self._fail(partition)  # Spark has not heard that it was done
            return
        if fault == "feed task twice":
            self._begin(partition, "")
        world.at(world.between(0.001, 0.1), self._produced.setdefault, partition, len(rows))

    def _fail(self, partition: int) -> None:
        self._failures[partition] = self._failures.get(partition, 0) + 1
        if self._failures[partition] >= _ATTEMPTS:
            self._error_s = self._world.now_s if self._error_s is None else self._error_s
        elif not self._head.is_over:
            self._world.at(0.1, self._begin, partition, "")
