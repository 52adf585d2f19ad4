"""All independent runs of one call as displays and other processes see them: a view with a row for each run."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.launchers import LauncherTraits
from tfos_lab.core.roles import chief_of
from tfos_lab.core.states import NodeState, RunState
from tfos_lab.driver.bus import Bus
from tfos_lab.driver.history import History
from tfos_lab.driver.parallel.nodes import node_specs_of
from tfos_lab.driver.parallel.results import ParallelResults
from tfos_lab.driver.parallel.slots import Slots
from tfos_lab.driver.parallel.state import ParallelState, RunEntry
from tfos_lab.driver.parallel.tries import RunTry
from tfos_lab.driver.publisher import make_publisher
from tfos_lab.driver.record.inputs import Plain, plain_inputs
from tfos_lab.driver.record.recorder import RunRecorder
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.runs.keep import keep_newest
from tfos_lab.driver.state.events import (
    ClusterView,
    Event,
    MetricsReported,
    NodeView,
    RunFacts,
    SearchFacts,
    StateChanged,
)
from tfos_lab.errors import ParallelFailed, ParallelInterrupted, TfosError

# Up to so many runs, each change is told at once; of more, what has changed in so many seconds.
_FEW_RUNS = 12
_TELL_EVERY_S = 2.0
# How long the last record may take to be written; a disk that does not answer must not hold up the results.
_RECORD_TIMEOUT_S = 2.0


class ParallelRuns:
    """The runs of one call; `tfos_lab.driver.parallel.runner.Runner` moves them on.

    Parameters
    ----------
    config : ClusterConfig
        What each run is asked for.
    launcher : LauncherTraits
        Who starts their nodes.
    state : ParallelState
        The runs.
    slots : Slots
        Where they find a slot.
    run_dir : RunDir
        The folder that holds theirs.
    call : (callable, object)
        The user's function, and the arguments that all runs have in common, or None: both are recorded.

    Attributes
    ----------
    noun : str
        What one of them is called.
    lock : threading.RLock
        Held while the state changes.
    tries : dict of int to RunTry
        The tries that go on, by run.
    """

    noun = "run"

    def __init__(
        self,
        config: ClusterConfig,
        launcher: LauncherTraits,
        state: ParallelState,
        slots: Slots,
        run_dir: RunDir,
        *,
        call: tuple[Callable[..., Any], Any],
    ) -> None:
        self.id = run_dir.id
        self.name = config.name
        self.config = config
        self.launcher = launcher
        self.state = state
        self.slots = slots
        self.files = run_dir
        self.lock = threading.RLock()
        self.tries: dict[int, RunTry] = {}
        self._called_s = time.time()
        self._ended_s: float | None = None
        self.map_fun = call[0]
        self.inputs: dict[str, Plain] = plain_inputs(*call)
        self.history = History(self._called_s)
        self.bus = Bus(self._on_events)
        self._nodes: dict[int, NodeView] = {}
        self._parts: dict[int, RunDir] = {}
        self._told_s = 0.0
        self._leader = chief_of(node_specs_of(config, launcher)).node
        self._publisher = make_publisher(
            run_dir, lambda: str(run_dir.events), lambda: self.ended, tensorboard=config.tensorboard
        )
        self._recorder = RunRecorder(run_dir, self, lambda: keep_newest(run_dir, config))

    # ---- for displays -----------------------------------------------------------------------------------------------

    @property
    def run_dir(self) -> Path:
        """The folder that holds those of the runs."""
        return self.files.path

    @property
    def ended(self) -> bool:
        """Whether all runs have ended."""
        return self._ended_s is not None

    @property
    def results(self) -> ParallelResults:
        """What the runs have returned so far."""
        with self.lock:
            return ParallelResults([dataclasses.replace(entry) for entry in self.state.entries])

    def view(self) -> ClusterView:
        """Return all that can be seen of the runs now, as one value."""
        now_s = time.time()
        with self.lock:
            nodes = tuple(self._node(entry, now_s) for entry in self._in_order())
            return ClusterView(
                cluster_id=self.id,
                name=self.name,
                state=self._state(),
                launcher=self.launcher.name,
                started_s=self._called_s,
                ended_s=self._ended_s,
                nodes=nodes,
                timings={},
                reason=self._reason(),
                notes=self._notes(),
                of_runs=True,
                search=self._search_facts(),
            )

    def _in_order(self) -> Sequence[RunEntry]:
        """Return the runs in the order of the table."""
        return self.state.entries

    def _search_facts(self) -> SearchFacts | None:
        return None

    def _state(self) -> RunState:
        if self._ended_s is None:
            return RunState.STOPPING if self.state.stopping else RunState.RUNNING
        if self.state.count(NodeState.STOPPED):
            return RunState.STOPPED
        return RunState.FAILED if self.state.count(NodeState.FAILED, NodeState.LOST) else RunState.DONE

    def _reason(self) -> str:
        failed = self.state.count(NodeState.FAILED, NodeState.LOST)
        return f"{failed} of {len(self.state.entries)} {self.noun}s failed" if failed and self.ended else ""

    def _notes(self) -> tuple[str, ...]:
        notes = self.history.notes
        if self.slots.is_waiting and self.state.waiting and not self.ended:
            total = f"of {self.slots.total} " if self.slots.total else ""
            notes = (*notes, f"Waiting for a free task slot {total}in Spark.")
        return tuple(notes)

    def _node(self, entry: RunEntry, now_s: float) -> NodeView:
        going = self.tries.get(entry.index)
        node = going.node() if going is not None else self._nodes.get(entry.index)
        node = node or NodeView(self.name_of(entry.index), "run", entry.index, is_chief=False)
        seconds = entry.seconds(now_s)
        # Whole seconds while it runs: the page gets what has changed.
        shown = seconds if seconds is None or entry.ended_s is not None else float(int(seconds))
        return dataclasses.replace(
            node,
            state=_going_state(node.state) if going is not None else entry.state,
            detail=entry.failure.summary if entry.failure is not None else node.detail,
            run=RunFacts(
                entry.args,
                going=going is not None,
                tries=entry.tries,
                seconds=shown,
                best=self._best_of(entry),
                params=self._params_of(entry),
                log=self._log_of(entry.index),
            ),
        )

    def _best_of(self, entry: RunEntry) -> float | None:  # noqa: ARG002 - a hook
        """Return the best value that a run has reported, where that is of interest."""
        return None

    def _params_of(self, entry: RunEntry) -> Mapping[str, Plain]:  # noqa: ARG002 - a hook
        """Return the parameters of a run, where each has its own."""
        return {}

    def _log_of(self, index: int) -> str:
        """Return the log file of a run's last try, below the folder of all runs."""
        part = self._parts.get(index)
        return str(part.log(self._leader).relative_to(self.run_dir)) if part is not None else ""

    def name_of(self, index: int) -> str:
        """Return what displays call a run."""
        return f"{self.noun} {index}"

    def logs(self, node: str | None = None, tail: int | None = None) -> str:
        """Return what a run's last try has printed, or each run's, with its name before each line."""
        if node is not None:
            return _last_lines(self.log_path(node), tail)
        names = [self.name_of(entry.index) for entry in self.state.entries]
        return "".join(f"[{name}] {line}" for name in names for line in self.logs(name, tail).splitlines(keepends=True))

    def log_path(self, node: str) -> Path:
        """Return the log file of the leading node of a run's last try; raises KeyError for an unknown run."""
        number = node.removeprefix(f"{self.noun} ")
        if not number.isdigit() or int(number) >= len(self.state.entries):
            raise KeyError(f"no {self.noun} {node!r}; there are {len(self.state.entries)}, from '{self.noun} 0' on")
        return self.files_of(int(number)).log(self._leader)

    def files_of(self, index: int) -> RunDir:
        """Return the folder of a run's last try."""
        return self._parts.get(index, self.files)

    def part(self, index: int) -> RunDir | None:
        """Return the folder of a run's last try, if there was one."""
        return self._parts.get(index)

    def failure(self) -> TfosError:
        """Return the error that tells the failures."""
        results = self.results
        return ParallelFailed(failed=results.failures.values(), results=results)

    def interruption(self) -> ParallelInterrupted:
        """Return the error that tells that the user has stopped them."""
        results = self.results
        return ParallelInterrupted(self.name, results, results.done)

    def reports_after(self, count: int = 0) -> tuple[list[MetricsReported], int]:
        """Return the metrics reported after the first ``count`` ones, and how many there have been in all."""
        return self.history.metrics_after(count)

    def stop(self, *, grace: float | None = None) -> None:
        """Stop all runs that go on, and begin no others; may be called twice, and from any thread."""
        with self.lock:
            self.state.stop()
            tries = list(self.tries.values())
        self.tell()
        name = f"tfos-stop-{self.id}"
        threads = [threading.Thread(target=one.stop, args=(grace,), name=name, daemon=True) for one in tries]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    # ---- for the runner ---------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Show the runs to other processes, and record them from now on."""
        self._recorder.start()
        if self._publisher is not None:
            self._publisher.publish()

    def make_part(self, index: int) -> RunDir:
        """Make the folder of a run's next try."""
        tries = self.state.entries[index].tries
        part = self.files.make_part(f"{index}.{tries}" if tries > 1 else str(index))
        self._parts[index] = part
        return part

    def keep(self, index: int) -> None:
        """Keep what is seen of a try that has ended."""
        self._nodes[index] = self.tries.pop(index).node()

    def tell(self, *, at_once: bool = True) -> None:
        """Tell subscribers that something has changed; unless ``at_once``, not too often for many runs."""
        now_s = time.time()
        if not at_once and len(self.state.entries) > _FEW_RUNS and now_s - self._told_s < _TELL_EVERY_S:
            return
        self._told_s = now_s
        with self.lock:
            state, reason = self._state(), self._reason()
        self.bus.publish(StateChanged(time_s=now_s, state=state, reason=reason))

    def end(self) -> None:
        """All runs have ended."""
        with self.lock:
            self._ended_s = time.time()
        self._recorder.finish()
        self.tell()
        try:
            self._recorder.join(_RECORD_TIMEOUT_S)
        finally:  # also after another interrupt
            if self._publisher is not None:
                self._publisher.close()

    def _on_events(self, *events: Event) -> None:
        self.history.record(*events)
        for event in events:
            self._recorder.on_event(event)


def _going_state(state: NodeState) -> NodeState:
    """Return how far a run is that goes on: it has not ended before its end is recorded, as its rows may still come."""
    return {NodeState.STOPPED: NodeState.STOPPING, NodeState.DONE: NodeState.RUNNING}.get(state, state)


def _last_lines(path: Path, tail: int | None) -> str:
    if not path.exists():
        return ""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    return "".join(lines[-tail:] if tail else lines)
