"""A cluster without nodes, sockets or Spark: the feed state is real, everything around it answers at once."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from tests.support.instructions import sends
from tfos_lab import messages as m
from tfos_lab.core.states import NodeState, RunState
from tfos_lab.engine.feed.request import FeedRequest
from tfos_lab.engine.feed.spark_job import Produced, Tasks
from tfos_lab.engine.state.feed_state import FeedState
from tfos_lab.engine.state.instructions import Publish
from tfos_lab.errors import NodeFailed

NOW_S = 50.0
NAMES = {1: "chief:0", 2: "worker:0"}
RUNNING, RESTARTING, FAILED, DONE = RunState.RUNNING, RunState.RESTARTING, RunState.FAILED, RunState.DONE
STOPPING, STOPPED = RunState.STOPPING, RunState.STOPPED
NODE_RUNNING = NodeState.RUNNING


class FakeGeneration:
    """Nodes that open their endpoints when asked to, and read streams as soon as their rows are complete."""

    def __init__(self, number=0, *, lock_step=True, opens=True):
        self.number = number
        self.feeds, self.caught_up = 0, number == 0
        self.state = RUNNING
        self.cluster_state = SimpleNamespace(reason="worker:0 was lost", views=[], fail=self._fail)
        self.feed_state = FeedState(NAMES, lock_step=lock_step)
        self.lock = threading.RLock()
        self.server = self
        self.stacks = SimpleNamespace(answers=lambda ranks, timeout_s: self.told)
        self.told = {}
        traits = SimpleNamespace(spans_hosts=False, runs_inline=False)
        self.launcher = SimpleNamespace(name="local", traits=traits, free_slots=self._free_slots)
        self.opens = opens
        self.reads_streams = True
        self.freed_slots = 0
        self.sent = []
        self.events = []
        self.failures = []
        self.has_failed = threading.Event()

    def _free_slots(self):
        self.freed_slots += 1

    def fail(self, failure):
        self.failures.append(failure)
        self.state = FAILED
        self.has_failed.set()

    def _fail(self, failure, _now_s):
        self.fail(failure)
        return []

    def request(self, change):
        with self.lock:
            self._carry_out(change(NOW_S))

    def receive(self, message):
        """Have the driver receive a message of a node."""
        with self.lock:
            self._carry_out(self.feed_state.handle(message, NOW_S))

    def _carry_out(self, instructions):
        for instruction in instructions:
            if isinstance(instruction, Publish):
                self.events.append(instruction.event)
            for rank, message in sends([instruction]):
                self.sent.append((rank, message))
                self._act(rank, message)

    def _act(self, rank, message):
        match message:
            case m.FeedOpen() if self.opens:
                self.receive(m.FeedReady(rank=rank, feed=message.feed, locations=[f"node {rank}"]))
            case m.InferenceOpen() if self.opens:
                self.receive(m.InferenceReady(rank=rank, locations=[f"node {rank}"]))
            case m.FeedComplete() if self.reads_streams:
                self.receive(m.FeedRead(rank=rank, feed=message.feed))

    def returns(self, rank):
        """Have a node's function return."""
        self.receive(m.Ended(rank=rank, outcome=m.Outcome(kind="returned")))

    def sent_to(self, rank, kind):
        """Return the messages of a kind that a node has been sent."""
        return [message for to, message in self.sent if to == rank and isinstance(message, kind)]


class FakeCluster:
    """A cluster with one generation at a time; `generations` are those that follow when nodes are lost."""

    id, name, spark = "fake-1", "cluster", None

    def __init__(self, generation=None, *generations):
        self.generation = generation or FakeGeneration()
        self.generations = list(generations)
        self.notes = []

    @property
    def state(self):
        return self.generation.state

    @property
    def ended(self):
        return self.state in (FAILED, STOPPED, DONE)

    def wait_until_running(self):
        if self.state == FAILED:
            raise self.failure()

    def wait_for_generation(self, number):
        self.generation = self.generations.pop(0)
        assert self.generation.number == number

    def failure(self):
        return NodeFailed(node="worker:0", kind="ValueError", message="no", traceback="")

    def note(self, text):
        self.notes.append(text)


class FakeFrame:
    """Rows whose Spark job is played by ``act(job)``; by default it stores five rows and ends well."""

    def __init__(self, act=None):
        self.act = act or (lambda job: job.store(2, leftover=1).succeed())
        self.jobs = []
        self.schema = SimpleNamespace(json=lambda: "schema")
        self.sparkSession = SimpleNamespace(createDataFrame=lambda _rows, _schema: FakeFrame(self.act))

    def request(self, **fields):
        return FeedRequest(**{"frame": self, "epochs": 1, "remainder": "pad", "timeout_s": 10.0, **fields})


class FakeSparkJob:
    """Stands in for `SparkJob`. The rows' ``act`` runs once, when the feed job first asks whether it has ended."""

    generation: FakeGeneration
    schema = ""

    def __init__(self, rows, plan, *, label, description):
        self.frame, self.plan = getattr(rows, "frame", None) or rows.rdd, plan
        self.label, self.description = label, description
        self.error, self.produced = None, Produced(0, 0)
        self.is_cancelled = False
        self._acts, self._has_ended = True, False
        self._partitions, self._rows = 0, 0
        self.frame.jobs.append(self)

    def has_ended(self, _timeout_s):
        if self._acts:
            self._acts = False
            self.frame.act(self)
        return self._has_ended

    def tasks(self):
        return Tasks(partitions=7, ended=self._partitions)

    def cancel(self):
        self.is_cancelled = True

    def store(self, rows, leftover=0):
        """Store a partition, so many rows on each node, which the driver commits."""
        message = m.AttemptStored(
            rank=1,
            feed=self.plan.feed,
            partition=self._partitions,
            attempt="a",
            rows=rows,
            size_bytes=10,
            leftover=leftover,
        )
        self._partitions += 1
        self._rows += rows * len(NAMES) + leftover
        self.generation.receive(message)
        return self

    def succeed(self, *, more_rows=0, more_partitions=0):
        """End well, having produced what was stored, and more that was not."""
        self.produced = Produced(self._rows + more_rows, self._partitions + more_partitions)
        self._has_ended = True

    def fail(self, error):
        self.error = error
        self._has_ended = True
