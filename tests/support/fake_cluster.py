"""A cluster that a test plays: it publishes what a real one would, so that displays can be tested without nodes."""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tfos_lab.core.config import ClusterConfig, assign_roles
from tfos_lab.core.roles import chief_of
from tfos_lab.core.states import NodeState, RunState
from tfos_lab.driver.bus import Bus
from tfos_lab.driver.history import History
from tfos_lab.driver.state.events import ClusterView, LogText, MetricsReported, NodeChanged, NodeView, StateChanged
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
    """Shows what it is told to: states, figures and text of nodes."""

    def __init__(self, *, name: str = "mnist", nodes: int = 4, run_dir: str | Path | None = None) -> None:
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
        self._lock = threading.Lock()
        self._logs: dict[str, list[str]] = {}
        node_specs = assign_roles(ClusterConfig(cluster_size=nodes))
        chief = chief_of(node_specs)
        self._view = ClusterView(
            cluster_id=self.id,
            name=name,
            state="launching",
            launcher="spark",
            started_s=time.time(),
            ended_s=None,
            timings={},
            nodes=tuple(NodeView(spec.node, spec.job_name, spec.task_index, spec == chief) for spec in node_specs),
        )

    # What displays use.

    def view(self) -> ClusterView:
        with self._lock:
            return self._view

    def stop(self) -> None: ...

    def logs(self, node: str | None = None, tail: int | None = None) -> str:
        names = [node] if node else list(self._logs)
        lines = "".join(text for name in names for text in self._logs.get(name, [])).splitlines(keepends=True)
        return "".join(lines[-tail:] if tail else lines)

    def log_path(self, node: str) -> Path:
        if node not in self.nodes:
            raise KeyError(node)
        path = self.run_dir / f"{node.replace(':', '-')}.log"
        # Somebody may be reading it: a file that is written again would be empty for a moment.
        whole = path.with_suffix(f".{threading.get_ident()}")
        whole.write_text(self.logs(node))
        return whole.replace(path)

    def stacks(self, node: str | None = None, timeout: float = 5.0) -> dict[str, str]:
        return {name: f"MainThread of {name}\n{STACKS}" for name in ([node] if node else self.nodes)}

    def failure(self) -> Exception:
        return NodeFailed(
            node="worker:0", kind="ValueError", message="no", traceback="Cell In[1], line 2\nValueError: no"
        )

    def reports_after(self, count: int = 0) -> tuple[list[MetricsReported], int]:
        return self.history.metrics_after(count)

    # What tests use.

    def set_state(self, state: str, reason: str = "") -> None:
        now = time.time()
        with self._lock:
            timings = dict(self._view.timings)
            phase = {"reserving": "launched", "running": "running", "done": "done"}.get(state)
            if phase:
                timings[phase] = now - self._view.started_s
            self._view = dataclasses.replace(
                self._view, state=state, reason=reason, timings=timings, ended_s=now if RunState(state).ended else None
            )
        self.bus.publish(StateChanged(time_s=now, state=RunState(state), reason=reason))

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
                dataclasses.replace(view, **{"last_heartbeat_s": now, **fields}) if view.name == node else view  # type: ignore[arg-type]
                for view in self._view.nodes
            )
            self._view = dataclasses.replace(self._view, nodes=nodes)
        if "state" in fields:
            self.bus.publish(NodeChanged(time_s=now, node=node, state=NodeState(fields["state"])))

    def write(self, node: str, text: str, stream: str = "stdout") -> None:
        self._logs.setdefault(node, []).append(text)
        self.bus.publish(LogText(time_s=time.time(), node=node, stream=stream, text=text))

    @property
    def nodes(self) -> list[str]:
        return [node.name for node in self._view.nodes]
