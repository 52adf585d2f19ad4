"""One driver with so many acted nodes, from their reservation to their end: prints its figures as JSON.

    python -m benchmarks.scale_driver 4096

It is a process of its own, so that its CPU time and memory are those of a driver.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.acted_cluster import ActedCluster
from tfos_lab.core import messages as m
from tfos_lab.core.states import NodeState, RunState
from tfos_lab.notebook.display.dashboard import LOG_PERIOD_S, Updates
from tfos_lab.notebook.display.table import LiveTable

_PARTITIONS = 1_000
_PATIENCE_S = 300.0
_STEP_S = 0.02


class Watcher:
    """Does on a thread what the dashboard of a cell does, and how long its turns take."""

    def __init__(self, acted: ActedCluster) -> None:
        self.turns_s: list[float] = []
        # What the page is sent.
        self.sizes: list[int] = []
        self._updates = Updates(acted.cluster, LiveTable(), lambda: {"text/html": ""})
        widget: Any = self._updates.widget
        widget.observe(lambda change: self.sizes.append(len(json.dumps(change.new))))
        widget.send = lambda message: self.sizes.append(len(json.dumps(message)))
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.wait(LOG_PERIOD_S):
            began_s = time.perf_counter()
            self._updates.send()
            self.turns_s.append(time.perf_counter() - began_s)

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join()
        self._updates.close()


class Probe:
    """Measures how long the driver's thread takes until it turns to something new."""

    def __init__(self, acted: ActedCluster) -> None:
        self._acted = acted
        self.waits_s: list[float] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.wait(_STEP_S):
            asked_s, head = time.perf_counter(), self._acted.cluster.head
            answered = threading.Event()
            head.request(lambda _now_s, answered=answered: answered.set() or [])  # type: ignore[func-returns-value]
            while not answered.wait(0.5) and not head.over.is_set():
                pass
            self.waits_s.append(time.perf_counter() - asked_s)

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join()


class Measured:
    """The phases of one driver's life, with what each has cost."""

    def __init__(self, nodes: int, folder: Path, seconds: float) -> None:
        self._nodes, self._seconds = nodes, seconds
        self._process = psutil.Process()
        self._before_bytes = self._process.memory_info().rss
        self.figures: dict[str, Any] = {"nodes": nodes}
        self._acted = ActedCluster(nodes, folder, grace=2.0)
        self._watcher = Watcher(self._acted)
        self._probe = Probe(self._acted)

    def run(self) -> dict[str, Any]:
        """Go through all phases; return their figures."""
        try:
            self._reserve()
            self._stay("beats", "rest")
            self._stay("work", "work")
            self._stay("more work", "work")
            self._feed()
            self._lose()
        except Exception as error:  # noqa: BLE001 - the figures until then are of use, too
            self.figures["failed"] = f"{type(error).__name__}: {error}"
        finally:
            self._probe.close()
            self._watcher.close()
            self._acted.close()
        return self.figures

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        page, turns = self._watcher.sizes, self._watcher.turns_s
        for figures in (page, turns, self._probe.waits_s):
            figures.clear()
        cpu_s, wall_s = time.process_time(), time.monotonic()
        yield
        cpu_s, wall_s = time.process_time() - cpu_s, time.monotonic() - wall_s
        rss = self._process.memory_info().rss - self._before_bytes
        self.figures[name] = {
            "seconds": wall_s,
            "cpu_s": cpu_s,
            "cores": cpu_s / wall_s,
            "rss_per_node_kb": rss / self._nodes / 1e3,
            "p95_wait_ms": 1e3 * _p95(self._probe.waits_s),
            "p95_view_ms": 1e3 * _p95(turns),
            "page_kb_per_s": sum(page) / wall_s / 1e3,
            "largest_message_kb": max(page, default=0) / 1e3,
        }
        sys.stderr.write(f"{name}: {cpu_s / wall_s:.2f} cores over {wall_s:.1f} s, {rss / 1e6:.0f} MB\n")

    def _reserve(self) -> None:
        with self._phase("reservation"):
            self._acted.cluster.launch()
            self._acted.cluster.wait_until_running(_PATIENCE_S)
        timings = self._acted.cluster.history.timings
        self.figures["reservation"] |= {"reserved_s": timings["reserved"], "running_s": timings["running"]}

    def _stay(self, name: str, what: str) -> None:
        launcher = self._acted.launcher
        launcher.order(what)
        time.sleep(1.0)
        launcher.ask()
        with self._phase(name):
            time.sleep(self._seconds)
        self._add_sent(name)

    def _add_sent(self, name: str) -> None:
        sent, seconds = self._acted.launcher.ask(), self.figures[name]["seconds"]
        for what in ("heartbeats", "reports", "lines", "batches"):
            self.figures[name][f"{what}_per_s"] = sent[what] / seconds
        self.figures[name] |= {"acted_cores": sent["cpu_s"] / seconds, "acted_p95_late_ms": 1e3 * sent["p95_late_s"]}

    def _feed(self) -> None:
        head = self._acted.cluster.head
        state = head.feed_state
        self._acted.launcher.ask()
        with self._phase("feed"):
            opened = m.FeedOpen(feed=-1, epochs=1, remainder="drop", schema="{}", token="token")
            head.request(lambda _now_s: state.open(opened))
            self._until(lambda: state.current is not None and len(state.current.locations) == self._nodes)
            feed = state.current
            assert feed is not None
            self._acted.launcher.order("feed", feed=feed.number, partitions=_PARTITIONS, seconds=int(self._seconds))
            self._until(lambda: len(feed.committed) == _PARTITIONS)
            head.request(lambda now_s: state.job_done(feed.number, feed.total_rows, _PARTITIONS, now_s))
            self._until(lambda: feed.state == "complete")
        self._add_sent("feed")

    def _until(self, condition: Callable[[], bool]) -> None:
        """Wait for something while the cluster runs."""
        cluster = self._acted.cluster
        _until(lambda: cluster.ended or condition())
        if cluster.ended:
            raise RuntimeError(f"the cluster has ended before its time: {cluster.view().reason}")

    def _lose(self) -> None:
        head, rank = self._acted.cluster.head, self._nodes // 2
        with self._phase("a lost node"):
            self._acted.launcher.order("vanish", rank=rank)
            _until(lambda: self._acted.cluster.head.state.view_of(rank).state is NodeState.LOST)
        with self._phase("stop"):
            head.over.wait(_PATIENCE_S)
        assert self._acted.cluster.state is RunState.FAILED
        self.figures["stop"]["stopped"] = sum(
            view.state is NodeState.STOPPED for view in self._acted.cluster.head.state.views
        )


def _p95(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[int(0.95 * len(ordered))] if ordered else 0.0


def _until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError("the acted cluster did not get there")
        time.sleep(_STEP_S)


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each phase")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(Measured(options.nodes, Path(folder, "run"), options.seconds).run()))


if __name__ == "__main__":
    main()
