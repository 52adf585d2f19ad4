"""A cluster that only pretends: it publishes what a real one would, so that displays can be tested without Spark.

    cluster = FakeCluster(scenario="train")
    cluster.start()

Scenarios: ``train`` (four nodes reserve one by one, train and are done), ``fail`` (``worker:1`` raises half-way),
``flood`` (every node prints ``lines_per_s``), ``forever`` (trains until it is stopped). With a ``gate``, the first node
alone has reserved until that file is there, and training stands still at a quarter of its steps until it is gone.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.roles import assign_roles, chief_of
from tfos_lab.core.states import RunState
from tfos_lab.engine.bus import Bus
from tfos_lab.engine.history import History
from tfos_lab.engine.state.events import (
    ClusterView,
    FeedView,
    LogText,
    MetricsReported,
    NodeChanged,
    NodeView,
    StateChanged,
)
from tfos_lab.errors import NodeFailed

_ids = itertools.count(1)

TRACEBACK = """\x1b[31mTraceback (most recent call last):\x1b[0m
  File "Cell In[5], line 12, in map_fun
    model.fit(dataset)
\x1b[31mValueError\x1b[0m: label 11 is outside the 10 classes
"""

STACKS = """\
  File "Cell In[5]", line 12, in map_fun
    model.fit(dataset, epochs=3)
  File ".../keras/src/trainers/trainer.py", line 377, in fit
    logs = self.train_function(iterator)
"""


class FakeCluster:
    """Plays a scenario on a thread of its own; ``speed=2`` plays it twice as fast."""

    def __init__(
        self,
        *,
        name: str = "mnist",
        nodes: int = 4,
        scenario: str = "train",
        steps: int = 40,
        speed: float = 1.0,
        lines_per_s: int = 2500,
        flood_s: float = 5.0,
        run_dir: str | Path | None = None,
        launcher: str = "spark",
        gate: Path | None = None,
    ) -> None:
        self.id = f"fake-{next(_ids)}-{time.time_ns() % 1_000_000}"
        self.name = name
        self.history = History(time.time())
        self.bus = Bus(self.history.record)
        # Removed together with this object.
        self._scratch = None if run_dir else tempfile.TemporaryDirectory(prefix="tfos-fake-")
        # In a folder of its own: the Jupyter server looks for ended runs beside it.
        self.run_dir = Path(run_dir or f"{self._scratch.name}/fake")
        if self._scratch:
            self.run_dir.mkdir()
        self.stops = 0
        self.lines_written = 0
        self._scenario, self._steps, self._speed = scenario, steps, speed
        self._lines_per_s, self._flood_s = lines_per_s, flood_s
        self._gate = gate
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._logs: dict[str, list[str]] = {}
        node_specs = assign_roles(ClusterConfig(cluster_size=nodes))
        chief = chief_of(node_specs)
        self._view = ClusterView(
            cluster_id=self.id,
            name=name,
            state="launching",
            launcher=launcher,
            started_s=time.time(),
            ended_s=None,
            timings={},
            nodes=tuple(NodeView(spec.node, spec.job_name, spec.task_index, spec == chief) for spec in node_specs),
        )
        self._thread = threading.Thread(target=self._play, name=f"fake-cluster-{self.id}", daemon=True)

    # What displays use.

    def view(self) -> ClusterView:
        with self._lock:
            return self._view

    def stop(self) -> None:
        self.stops += 1
        self._stopping.set()

    def logs(self, node: str | None = None, tail: int | None = None) -> str:
        names = [node] if node else list(self._logs)
        texts = [self._logs.get(name, []) for name in names]
        if tail:  # as of a file, a tail costs as much however long the whole is
            texts = [_last_texts(list(some), tail) for some in texts]
        lines = "".join("".join(some) for some in texts).splitlines(keepends=True)
        return "".join(lines[-tail:] if tail else lines)

    def log_path(self, node: str) -> Path:
        if node not in self.nodes:
            raise KeyError(node)
        path = self.run_dir / f"{node.replace(':', '-')}.log"
        # Somebody may be reading it: a file that is written again would be empty for a moment.
        whole = path.with_suffix(f".{threading.get_ident()}")
        whole.write_text(self.logs(node))
        return whole.replace(path)

    def stacks(self, node: str | None = None, timeout_s: float = 5.0) -> dict[str, str]:
        return {name: f"MainThread of {name}\n{STACKS}" for name in ([node] if node else self.nodes)}

    def failure(self) -> Exception:
        return NodeFailed(
            node="worker:0", kind="ValueError", message="no", traceback="Cell In[1], line 2\nValueError: no"
        )

    def reports_after(self, count: int = 0) -> tuple[list[MetricsReported], int]:
        return self.history.metrics_after(count)

    # What tests use.

    def start(self) -> FakeCluster:
        self._thread.start()
        return self

    def wait(self, timeout_s: float) -> bool:
        return self._ended.wait(timeout_s)

    def set_state(self, state: str, reason: str = "") -> None:
        now = time.time()
        with self._lock:
            timings = dict(self._view.timings)
            phase = {"reserving": "launched", "running": "running", "done": "done"}.get(state)
            if phase:
                timings[phase] = now - self._view.started_s
            self._view = dataclasses.replace(
                self._view,
                state=state,
                reason=reason,
                timings=timings,
                ended_s=now if RunState(state).ended else None,
            )
        self.bus.publish(StateChanged(time_s=now, state=state, reason=reason))
        if RunState(state).ended:
            self._ended.set()

    def mark(self, phase: str) -> None:
        with self._lock:
            timings = {**self._view.timings, phase: time.time() - self._view.started_s}
            self._view = dataclasses.replace(self._view, timings=timings)

    def note(self, text: str) -> None:
        with self._lock:
            self._view = dataclasses.replace(self._view, notes=(*self._view.notes, text))

    def alter(self, **fields: Any) -> None:
        with self._lock:
            self._view = dataclasses.replace(self._view, **fields)

    def change(self, node: str, **fields: object) -> None:
        now = time.time()
        with self._lock:
            nodes = tuple(
                dataclasses.replace(view, **{"last_heartbeat_s": now, **fields}) if view.node == node else view  # type: ignore[arg-type]
                for view in self._view.nodes
            )
            self._view = dataclasses.replace(self._view, nodes=nodes)
        if "state" in fields:
            self.bus.publish(NodeChanged(time_s=now, node=node, state=str(fields["state"])))

    def write(self, node: str, text: str, stream: str = "stdout") -> None:
        self._logs.setdefault(node, []).append(text)
        self.lines_written += text.count("\n")
        self.bus.publish(LogText(time_s=time.time(), node=node, stream=stream, text=text))

    @property
    def nodes(self) -> list[str]:
        return [node.node for node in self._view.nodes]

    # The scenarios.

    def _play(self) -> None:
        try:
            self._reserve()
            {"train": self._train, "fail": self._train, "flood": self._flood, "forever": self._train}[self._scenario]()
        except _Stopped:
            self.set_state("stopping")
            time.sleep(0.2)
            for node in self.nodes:
                self.change(node, state="stopped")
            self.set_state("stopped")

    def _pause(self, seconds: float) -> None:
        if self._stopping.wait(seconds / self._speed):
            raise _Stopped

    def _wait_at_gate(self, *, until_there: bool) -> None:
        while self._gate is not None and self._gate.exists() is not until_there:
            self._pause(0.02)

    def _reserve(self) -> None:
        self._pause(0.1)
        self.set_state("reserving")
        for index, node in enumerate(self.nodes):
            self._pause(0.5)
            if index == 1:
                self._wait_at_gate(until_there=True)
            host = f"exec-{index // 2 + 1}.cluster.internal"
            self.change(
                node,
                state="reserved",
                host=host,
                executor=str(index // 2),
                address=f"10.0.0.{index // 2 + 11}:{39001 + index}",
                pid=41200 + index * 17,
            )
        self.mark("reserved")
        self._pause(0.05)
        self.mark("released")
        self.set_state("starting")
        for node in self.nodes:
            self.change(node, state="importing")
        self._pause(0.3)
        self.mark("imported")
        for node in self.nodes:
            self.change(node, state="running")
            self.write(node, f"\x1b[2m2026-01-01 12:00:00\x1b[0m {node} joins MultiWorkerMirroredStrategy\n", "stderr")
        self.set_state("running")

    def _train(self) -> None:
        for step in itertools.count(1):
            self._pause(0.1)
            for index, node in enumerate(self.nodes):
                self._train_step(node, index, step)
            if step == self._steps // 4:
                self._wait_at_gate(until_there=False)
            if self._scenario == "fail" and step == self._steps // 2:
                self._fail("worker:1")
                return
            if self._scenario != "forever" and step >= self._steps:
                break
        for node in self.nodes:
            self.write(node, "\n")
            self.change(node, state="done")
        self.set_state("done")

    def _train_step(self, node: str, index: int, step: int) -> None:
        loss = 2.3 * math.exp(-step / 30) + 0.05 * index / 4
        metrics = {"loss": loss, "accuracy": 1 - math.exp(-step / 15)}
        total = None if self._scenario == "forever" else self._steps
        self.change(node, step=step, total_steps=total, metrics=metrics, rows=step * 64)
        now = time.time()
        self.bus.publish(MetricsReported(time_s=now, node=node, step=step, total_steps=total, metrics=metrics))
        done = step % 20 or 20
        bar = f"\x1b[32m{'━' * done}\x1b[0m\x1b[37m{'━' * (20 - done)}\x1b[0m"
        self.write(node, f"\b\b\b\b\r\x1b[1m{done:>2}/20\x1b[0m {bar} \x1b[1m0s\x1b[0m 95ms/step - loss: {loss:.4f}")
        if done == 20:
            self.write(node, f"\nEpoch {step // 20 + 1}\n")
        if step % 7 == index:
            self.write(node, f"\nstep {step}: <script>document.title = 'owned'</script> is text\n")
        if index == 0:
            self._feed(step, now)

    def _feed(self, step: int, now_s: float) -> None:
        """Feed rows during the first half of the steps; each node reads its share twice."""
        count = self._steps // 2 or 1
        fed = min(step, count)
        at_s = now_s - self._view.started_s
        before = self._view.feeds[0] if self._view.feeds else FeedView(started_s=at_s)
        feed = FeedView(
            started_s=before.started_s,
            ended_s=before.ended_s or (at_s if step >= count else None),
            rows=dict.fromkeys(self.nodes, fed * 64),
            partitions=fed,
            total_partitions=count,
            size_bytes=fed * 1_200_000,
            complete=step >= count,
            epochs=2,
        )
        if step == 1:
            self.mark("feeding")
        if step == count:
            self.mark("fed")
        with self._lock:
            self._view = dataclasses.replace(self._view, feeds=(feed,))

    def _fail(self, failing: str) -> None:
        self.write(failing, "\n" + TRACEBACK, "stderr")
        self.change(failing, state="failed", detail="ValueError: label 11 is outside the 10 classes")
        self.set_state("stopping", f"{failing} failed")
        time.sleep(0.2 / self._speed)
        for node in self.nodes:
            if node != failing:
                self.change(node, state="stopped", detail=f"stopped because {failing} failed")
        self.set_state("failed", f"{failing} failed: ValueError: label 11 is outside the 10 classes")

    def _flood(self) -> None:
        period, started, written = 0.02, time.monotonic(), 0
        while (passed := time.monotonic() - started) < self._flood_s:
            # One that is late goes on at its rate: a burst would not be kept whole.
            due = min(int(passed * self._lines_per_s), written + self._lines_per_s // 20)
            for node in self.nodes:
                lines = [f"{node} line {number:07d} of a flood, with some text\n" for number in range(written, due)]
                if lines:
                    self.write(node, "".join(lines))
            written = due
            self._pause(period * self._speed)
        for node in self.nodes:
            self.write(node, f"{node} last line\n")
            self.change(node, state="done", step=written)
        self.set_state("done")


def _last_texts(texts: list[str], lines: int) -> list[str]:
    """Return the last texts, with at least so many lines if there are as many."""
    found = 0
    for start in reversed(range(len(texts))):
        found += texts[start].count("\n")
        if found > lines:
            return texts[start:]
    return texts


class _Stopped(Exception):
    """The cluster was asked to stop."""
