"""Agents that are only acted, many in one process, over real connections: what `benchmarks.scale` loads a driver with.

The process gets its orders as lines of JSON on its standard input, first of all which agents to act (`Cast`), and ends
with it. All agents reserve, answer what the driver sends, and beat; at work they also report and write logs as nodes
do that train. What belongs together is sent together, as the acting shares a machine with the driver.
"""

from __future__ import annotations

import heapq
import io
import json
import os
import select
import sys
import time
from collections import deque
from collections.abc import Iterator

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.core.link import Link
from tfos_lab.core.processes import allow_descriptors
from tfos_lab.core.states import NodeState
from tfos_lab.node.driver_link import HEARTBEAT_S

# Each agent acts so often, and sooner while it waits for its start; one of thousands has less to do.
_PERIOD_S = 0.2
_EAGER_PERIOD_S = 0.05
_ACTS_PER_S = 8_000
# Executors come one after another, too; and those that are here go on beating meanwhile.
_CONNECTS_PER_S = 500
_CONNECTS_AT_ONCE = 8
_LINE = b"epoch 3 step 00041: loss 0.41235, accuracy 0.87654, 118 ms/step, 2 workers\n"
_ROWS_PER_NODE = 24
_FILES_BESIDE_SOCKETS = 64


class Cast(msgspec.Struct, frozen=True):
    """Who is acted by a process: ranks and names, and what they do a second when they work."""

    driver: m.DriverAddress
    agents: list[tuple[int, str]]
    cluster_size: int
    reports_per_s: int = 5
    lines_per_s: int = 25


class ActedAgent:
    """One agent, as the driver sees it.

    Attributes
    ----------
    gone : bool
        Whether it has left.
    commits : int
        How many partitions it has been told of.
    """

    def __init__(self, cast: Cast, rank: int, node: str) -> None:
        self._cast, self._rank, self._node = cast, rank, node
        self._link = Link(cast.driver)
        self.gone = False
        self.commits = 0
        self._started = self._working = False
        self._beat_s = self._activity_s = self._logged_s = 0.0
        self._reported_s = 0.0
        self._lines = 0.0
        self._step = 0
        self.sent = {"heartbeats": 0, "reports": 0, "lines": 0, "batches": 0}
        address = f"10.0.{rank // 250}.{rank % 250}:39001"
        self.send(m.Reserve(f"host-{rank // 8}", address, 1, str(rank // 8), [], rank=rank))

    def send(self, message: m.FromAgent) -> None:
        """Send a message to the driver."""
        self._link.send(m.encode(message))

    def work(self, now_s: float, *, working: bool) -> None:
        """Begin to report and to write logs, or stop it."""
        self._working = working
        self._reported_s = self._logged_s = now_s

    def act(self, now_s: float) -> None:
        """Answer what has come, and send what is due."""
        self.answer_all()
        if self.gone:
            return
        beats = now_s - self._beat_s >= HEARTBEAT_S - self.period_s / 2
        if self._working:
            self._report(now_s)
            self._log(now_s)
        if beats:
            self._beat_s = now_s
            self.send(m.Heartbeat())
            self.sent["heartbeats"] += 1

    @property
    def period_s(self) -> float:
        """How long it waits until it acts again."""
        return max(_PERIOD_S if self._started else _EAGER_PERIOD_S, self._cast.cluster_size / _ACTS_PER_S)

    def answer_all(self) -> None:
        """Answer what has come."""
        self._link.flush()
        for data in self._link.receive():
            self._answer(data)

    def _report(self, now_s: float) -> None:
        every_s = 1.0 / self._cast.reports_per_s
        while now_s - self._reported_s >= every_s:
            self._reported_s += every_s
            self._step += 1
            metrics = {"loss": 2.0 / (self._step + 1) + self._rank % 7 / 100, "accuracy": 1 - 1.0 / (self._step + 1)}
            self.send(m.Reported(self._step, 10_000, metrics, time.time()))
            self.sent["reports"] += 1
        if now_s - self._activity_s >= 1.0 - self.period_s / 2:
            self._activity_s = now_s
            self.send(self._activity())

    def _activity(self) -> m.Activity:
        seen = m.NodeActivity(
            step=self._step, step_s=0.2, waits_rows=0.05, waits_peers=0.2, computes=0.7, python=0.05,
            where="fit, train.py, line 41", cpu=1.5, memory_bytes=1_240_000_000, host_cpu=0.5, host_memory=0.4,
            idle_s=0.1, last_sign=f"step {self._step}",
        )  # fmt: skip
        return m.Activity(seen)

    def _log(self, now_s: float) -> None:
        self._lines += (now_s - self._logged_s) * self._cast.lines_per_s
        self._logged_s = now_s
        if lines := int(self._lines):
            self._lines -= lines
            record = m.LogRecord(time.time(), "stdout", _LINE * lines)
            self.send(m.Logs([record]))
            self.sent["lines"] += lines
            self.sent["batches"] += 1

    def _answer(self, data: bytes) -> None:
        match _kind_of(data):
            case "Start":
                self._started = True
                for state in (NodeState.IMPORTING, NodeState.STARTING, NodeState.RUNNING):
                    self.send(m.Progressed(state, os.getpid()))
            case "Stop" | "Finish":
                self._working = False
                self.send(m.Ended(m.Outcome(kind="stopped")))
                self.send(m.Drained())
            case "FeedOpen":
                feed = msgspec.msgpack.decode(data, type=m.FeedOpen).feed
                self.send(m.FeedReady(feed, [f"unix:/tmp/acted-{self._rank}"]))
            case "Commit":
                self.commits += 1
            case "Shutdown":
                self.leave()

    def leave(self) -> None:
        """Close the connection without a word."""
        self.gone = True
        self._link.close()


def _kind_of(data: bytes) -> str:
    """Return the kind of a message without decoding it: a start message names all nodes."""
    at = data.index(b"\xa4type") + 5
    return data[at + 1 : at + 1 + (data[at] & 0x1F)].decode()


class FeedTasks:
    """Spark's tasks of one feed that ask these agents to commit what they have stored, evenly over some seconds."""

    def __init__(self, agents: dict[int, ActedAgent], cluster_size: int, order: dict[str, int]) -> None:
        self._agents = agents
        self._feed, self._seconds, count = order["feed"], order["seconds"], order["partitions"]
        self._partitions = deque(p for p in range(count) if p % cluster_size in agents)
        self._count, self._began_s, self._cluster_size = len(self._partitions), time.monotonic(), cluster_size

    def act(self, now_s: float) -> None:
        """Ask for what is due."""
        due = self._count * min(1.0, (now_s - self._began_s) / self._seconds)
        while self._partitions and self._count - len(self._partitions) < due:
            partition = self._partitions.popleft()
            rank = partition % self._cluster_size
            attempt = m.AttemptStored(self._feed, partition, "1.0.1", _ROWS_PER_NODE, 1_000_000)
            self._agents[rank].send(attempt)


class Stage:
    """Acts all agents of one process in turn, until its standard input ends."""

    def __init__(self, cast: Cast) -> None:
        self._cast = cast
        allow_descriptors(len(cast.agents) + _FILES_BESIDE_SOCKETS)
        self._agents: dict[int, ActedAgent] = {}
        self._turns: list[tuple[float, int]] = []
        self._coming = deque(cast.agents)
        self._feed: FeedTasks | None = None
        self._late_s: list[float] = []
        self._began_s = time.monotonic()
        self._cpu_s = 0.0

    def run(self, orders: io.FileIO) -> None:
        """Act until there are no more orders."""
        while True:
            ready, _, _ = select.select([orders], [], [], 0.002)
            if ready:
                line = orders.readline()
                if not line:
                    break
                self._follow(json.loads(line))
            now_s = time.monotonic()
            self._let_in(now_s)
            if self._feed is not None:
                self._feed.act(now_s)
            self._act(now_s)

    def _let_in(self, now_s: float) -> None:
        due = (now_s - self._began_s) * _CONNECTS_PER_S
        for _ in range(_CONNECTS_AT_ONCE):
            if not self._coming or len(self._agents) >= due:
                return
            rank, node = self._coming.popleft()
            agent = self._agents[rank] = ActedAgent(self._cast, rank, node)
            # Spread out: agents of real hosts do not act in step.
            heapq.heappush(self._turns, (now_s + _PERIOD_S * (rank * 0.618 % 1.0), rank))
            agent.answer_all()

    def _act(self, now_s: float) -> None:
        while self._turns and self._turns[0][0] <= now_s:
            due_s, rank = heapq.heappop(self._turns)
            self._late_s.append(now_s - due_s)
            agent = self._agents[rank]
            agent.act(now_s)
            if not agent.gone:
                heapq.heappush(self._turns, (max(due_s, now_s - _PERIOD_S) + agent.period_s, rank))

    def _follow(self, order: dict[str, int | str]) -> None:
        match order:
            case {"do": "work" | "rest"}:
                for agent in self._agents.values():
                    agent.work(time.monotonic(), working=order["do"] == "work")
            case {"do": "feed"}:
                numbers = {key: value for key, value in order.items() if isinstance(value, int)}
                self._feed = FeedTasks(self._agents, self._cast.cluster_size, numbers)
            case {"do": "vanish", "rank": int(rank)} if rank in self._agents:
                self._agents[rank].leave()
            case {"do": "tell"}:
                self._tell()

    def _tell(self) -> None:
        """Say what was sent since the last time, and how late it was."""
        names = ("heartbeats", "reports", "lines", "batches")
        sent = {name: sum(agent.sent[name] for agent in self._agents.values()) for name in names}
        for agent in self._agents.values():
            agent.sent.update(dict.fromkeys(agent.sent, 0))
        late_s = sorted(self._late_s)
        p95_late_s = late_s[int(0.95 * len(late_s))] if late_s else 0.0
        cpu_s, self._cpu_s = time.process_time() - self._cpu_s, time.process_time()
        self._late_s.clear()
        commits = sum(agent.commits for agent in self._agents.values())
        print(json.dumps({**sent, "commits": commits, "p95_late_s": p95_late_s, "cpu_s": cpu_s}), flush=True)


def parts_of(cluster: list[tuple[int, str]], processes: int) -> Iterator[list[tuple[int, str]]]:
    """Share the agents of a cluster out to processes."""
    for number in range(processes):
        yield cluster[number::processes]


if __name__ == "__main__":
    # Unbuffered: an order that is already in a buffer could not be waited for.
    told = io.FileIO(sys.stdin.fileno(), closefd=False)
    Stage(msgspec.json.decode(told.readline(), type=Cast)).run(told)
