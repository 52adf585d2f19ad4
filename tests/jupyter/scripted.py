"""A cluster that follows a test's script, for the notebook edge: no nodes, no sockets."""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tfos_lab.engine.bus import Bus
from tfos_lab.engine.state.events import ClusterView, NodeView
from tfos_lab.errors import ClusterEnded, NodeFailed, WaitTimeout

_ids = itertools.count(1)


class ScriptedCluster:
    """Ends at once with ``results`` or ``error``, or when it is stopped (``forever``)."""

    def __init__(
        self,
        name: str = "cluster",
        *,
        results: dict[str, Any] | None = None,
        error: Exception | None = None,
        train_error: Exception | None = None,
        forever: bool = False,
    ) -> None:
        self.id = f"scripted-{next(_ids)}"
        self.name = name
        self.bus = Bus()
        self.run_dir = Path(tempfile.gettempdir()) / self.id
        self.results = results or {}
        self.calls: list[Any] = []
        self.waiting = threading.Event()
        self.stop_takes_s = 0.0
        self.launching: threading.Event | None = None
        self.launch_error: Exception | None = None
        self.refusal: Exception | None = None
        self._error, self._train_error = error, train_error
        self._started_s = time.time()
        self._state = "running"
        self._over = threading.Event()
        if not forever:
            self._end("failed" if error else "done")

    @property
    def _runtime(self) -> ScriptedCluster:
        return self

    def _end(self, state: str) -> None:
        self._state = state
        self._over.set()

    @property
    def state(self) -> str:
        return self._state

    @property
    def ended(self) -> bool:
        return self._state in ("done", "failed", "stopped")

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        return (
            NodeView("chief:0", "chief", 0, is_chief=True, state=self._state),
            NodeView("worker:0", "worker", 0, is_chief=False, state=self._state),
        )

    def view(self) -> ClusterView:
        ended_s = self._started_s + 1.5 if self.ended else None
        return ClusterView(self.id, self.name, self._state, "local", self._started_s, ended_s, self.nodes, {})

    def logs(self, node: str | None = None, tail: int | None = None) -> str:
        return f"log of {node or 'all'}, last {tail}"

    def note(self, text: str) -> None:
        self.calls.append(("note", text))

    def log_path(self, node: str) -> Path:
        return self.run_dir / f"{node}.log"

    def failure(self) -> Exception:
        return NodeFailed(
            node="worker:0", kind="ValueError", message="no", traceback="Cell In[1], line 2\nValueError: no"
        )

    def reports_after(self, count: int = 0) -> tuple[list[Any], int]:
        return [], 0

    def launch(self) -> None:
        if self.launching is not None:
            self.waiting.set()
            self.launching.wait(20)
        if self.launch_error is not None:
            self._end("failed")
            raise self.launch_error

    def wait_until_running(self, timeout_s: float | None = None) -> None:
        self.calls.append("wait_until_running")

    def train(self, data: Any, **options: Any) -> None:
        self.calls.append(("train", data, options))
        if self.refusal:
            raise self.refusal
        if self._train_error:
            self._end("failed")
            raise self._train_error

    def wait(self, timeout_s: float | None = None) -> Any:
        self.waiting.set()
        if not self._over.wait(timeout_s):
            raise WaitTimeout(waited_s=timeout_s or 0.0, still_running=["chief:0"])
        self.calls.append("wait")
        if self._error:
            raise self._error
        if self._state == "stopped":
            raise ClusterEnded(cluster=self.name, state="stopped", asked="wait for results")
        return self.results

    def stop(self, *, grace_s: float | None = None) -> None:
        self.calls.append(("stop", grace_s))
        if self.stop_takes_s and grace_s:
            self.waiting.set()
            time.sleep(self.stop_takes_s)
        self._end("stopped")
