"""All independent runs of one call: begins as many as there are slots, records how each ends, and shows them.

`make_runs` checks what is asked for. To displays and other processes they are one run, with a row for each.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from tfos_lab.core.config import ClusterConfig, NodeOptions, make_config
from tfos_lab.core.gpu_shares import ALL
from tfos_lab.core.launchers import LauncherTraits
from tfos_lab.core.options import given_options, whole
from tfos_lab.core.payload import LIMIT_BYTES, pack
from tfos_lab.core.roles import chief_of
from tfos_lab.core.states import NodeState, RunState
from tfos_lab.core.threads import on_a_thread
from tfos_lab.data.session_stores import stores_of
from tfos_lab.driver.bus import Bus
from tfos_lab.driver.cluster import Cluster
from tfos_lab.driver.history import History
from tfos_lab.driver.logs import read_log, read_logs
from tfos_lab.driver.parallel.slots import Slots, slots_for
from tfos_lab.driver.parallel.state import Ending, ParallelResults, ParallelState, RunEntry, short
from tfos_lab.driver.parallel.tries import Feed, RunTry
from tfos_lab.driver.publisher import make_publisher
from tfos_lab.driver.record.inputs import Plain, plain_inputs
from tfos_lab.driver.record.recorder import LAST_RECORD_S, RunRecorder
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.run_store import with_store
from tfos_lab.driver.runs.keep import keep_newest
from tfos_lab.driver.start import choose_launcher, driver_hosts, node_specs_of
from tfos_lab.driver.state.events import (
    ClusterView,
    Event,
    MetricsReported,
    NodeView,
    RunFacts,
    SearchFacts,
    StateChanged,
)
from tfos_lab.errors import ConfigError, NotAllAtOnce, ParallelFailed, ParallelInterrupted, RunFailed, TfosError
from tfos_lab.launchers.spark.slots import await_slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Short, so that ■ and the display react quickly.
_STEP_S = 0.05
# After ■ nobody wants to wait: runs get no more than this to shut down.
_INTERRUPT_GRACE_S = 1.0
_JOIN_S = 5.0
# After a run that found no slot, Spark is asked again so much later.
_NO_SLOT_S = 0.5


def make_runs(
    map_fun: Callable[..., Any],
    args_list: Iterable[Any],
    *,
    slots: int | None = None,
    at_once: bool = False,
    retries: int = 0,
    timeout: float | None = None,
    spark: SparkSession | None = None,
    name: str = "parallel",
    feed: Feed | None = None,
    **options: Unpack[NodeOptions],
) -> ParallelRuns:
    """Return independent runs of ``map_fun(args, ctx)``, one for each argument; see `tfos_lab.parallel`.

    With ``at_once``, all go on at once or none. ``feed`` feeds the nodes of each run their rows, once they run. Raises
    for what cannot work, before anything is started.
    """
    problems = list(problems_with(slots, retries, timeout))
    if problems:
        raise ConfigError(problems)
    args = _checked_list(args_list)
    config = make_config(name=name, **given_options(NodeOptions, "parallel", options))
    session, launcher = choose_launcher(config, spark)
    config = with_store(config, session)
    if not launcher.runs_inline:
        # Each run is packed when it begins; what cannot be packed is refused now.
        pack(map_fun, args, limit_bytes=LIMIT_BYTES * max(1, len(args)))
    places = slots_for(launcher, session, limit=slots, gpus=config.gpus)
    if at_once:
        if session is not None:
            await_slots(session, len(args))
        free = places.free(0, 0)
        if free < len(args):
            raise NotAllAtOnce(wanted=len(args), free=free, total=max(places.total, free))
    return ParallelRuns(
        map_fun, args, config, launcher, session, slots=places, retries=retries, timeout_s=timeout, feed=feed
    )


def problems_with(slots: object, retries: object, timeout: object) -> Iterable[str]:
    """Return what is wrong with the limits of independent runs."""
    if slots is not None:
        yield from whole(1, needs="a whole number from 1 on is needed, or None for as many as there are")(
            "slots", slots
        )
    yield from whole(0, needs="a whole number from 0 on is needed")("retries", retries)
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0):
        yield f"timeout={timeout!r}: a number of seconds, more than 0, is needed, or None"


def _checked_list(args_list: Iterable[Any]) -> list[Any]:
    if isinstance(args_list, str | bytes | Mapping) or not isinstance(args_list, Iterable):
        needed = "a list of arguments is needed, one for each run, such as [{'lr': 0.1}, {'lr': 0.01}] or range(10)"
        raise ConfigError([f"args_list is a {type(args_list).__name__}: {needed}"])
    if hasattr(args_list, "columns"):  # a table, whose iterator gives the names of its columns
        advice = "for a dict of each of its rows, as of a pandas table, write df.to_dict('records')"
        raise ConfigError([f"args_list is a {type(args_list).__name__}: {advice}"])
    return list(args_list)


class ParallelRuns:
    """The runs of one call. `run` moves them on; the rest may be called from any thread meanwhile.

    Each try has its own thread (``tfos-run-…``), or runs inline on the calling one. Unless they are inline, another
    thread (``tfos-runs-…``) begins them, and the calling one only waits: an interrupt that meets a call to Spark may be
    lost, as py4j turns it into another error, or Python forgets what is raised while it frees an object.

    ``args`` has what each run gets, and ``common`` what all have in common, to be recorded; ``feed`` feeds the nodes of
    each run their rows, once they run. `noun` is what one run is called. `state`, which changes under `lock`, tells
    which of them wait, go on and have ended.
    """

    noun = "run"
    _failed_with: ClassVar[type[ParallelFailed]] = ParallelFailed

    def __init__(
        self,
        map_fun: Callable[..., Any],
        args: Sequence[Any],
        config: ClusterConfig,
        launcher: LauncherTraits,
        session: SparkSession | None,
        *,
        slots: Slots,
        retries: int = 0,
        timeout_s: float | None = None,
        feed: Feed | None = None,
        common: Any = None,
    ) -> None:
        self.map_fun = map_fun
        self.name: str = config.name
        self.config = config
        self.launcher = launcher
        self.timeout_s = timeout_s
        self.feed = feed
        self.inputs: dict[str, Plain] = plain_inputs(map_fun, common)
        self.state = ParallelState([short(one) for one in args], retries)
        self._args = args
        self._session = session
        self._slots = slots
        self._hosts, self._stores = driver_hosts(session, launcher), stores_of(session)
        self._leader = chief_of(node_specs_of(config, launcher)).node
        # Their folder, and who hears of them.
        self.files = RunDir.make(config.name)
        self.id = self.files.id
        self._called_s = time.time()
        self._ended_s: float | None = None
        self.history = History(self._called_s)
        self.bus = Bus(self._on_events)
        self._publisher = make_publisher(
            self.files, lambda: str(self.files.events), lambda: self.ended, tensorboard=config.tensorboard
        )
        self._recorder = RunRecorder(self, lambda: keep_newest(self.files, config))
        # What goes on now.
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._threads: set[threading.Thread] = set()
        self._moved: Future[None] | None = None
        self._fatal: TfosError | None = None
        # The executors are fit, or there are none; a function has run and ended.
        self._proven = not launcher.spans_hosts
        self._one_has_run = False
        self._not_before_s = 0.0

    # ---- what a search does otherwise; all but the first two are called with the lock held ---------------------------

    def call_of(self, entry: RunEntry) -> tuple[Callable[..., Any], Any]:
        """Return the function, and what it gets, in a run that begins."""
        return self.map_fun, self._args[entry.index]

    def config_of(self, entry: RunEntry) -> ClusterConfig:  # noqa: ARG002 - a hook
        """Return what the cluster of a run that begins is asked for."""
        return self.config

    def _size_of(self, entry: RunEntry) -> int:
        """Return how many slots a run takes that may begin next."""
        return entry.slots

    def _begins(self, entry: RunEntry) -> None:
        """A run begins its next try."""

    def _judge(self, entry: RunEntry, order: int, report: MetricsReported) -> bool:  # noqa: ARG002 - a hook
        """Return whether a run is to be cut, as a node has reported; ``order`` is 0 for the one that leads."""
        return False

    def _has_ended(self, entry: RunEntry) -> TfosError | None:  # noqa: ARG002 - a hook
        """A run has ended for good; return why no run can succeed, if what it has returned proves that."""
        return None

    def _all_have_ended(self) -> None:
        """No run begins or goes on any more."""

    def _in_order(self) -> Sequence[RunEntry]:
        return self.state.entries

    def _facts_of(self, entry: RunEntry) -> dict[str, Any]:  # noqa: ARG002 - a hook
        """Return further fields of a run's `RunFacts`."""
        return {}

    def _search_facts(self) -> SearchFacts | None:
        return None

    def _count_failed(self) -> int:
        """Return how many runs have failed, if that makes the whole a failure."""
        return self.state.count(NodeState.FAILED, NodeState.LOST)

    # ---- to their ends ----------------------------------------------------------------------------------------------

    def run(self, on_step: Callable[[], None] = lambda: None) -> Any:
        """Run all to their ends, and return the results; ``on_step`` is called often on this thread.

        Raises ParallelInterrupted if the user interrupted or stopped them, and a TfosError if no run can succeed, as
        executors lack a package or the session is dead: all are stopped.
        """
        interrupted = False
        try:
            self._recorder.start()
            self._publisher.publish()
            self._tell()
            if self.launcher.runs_inline:
                self._move_on(on_step)
            else:
                self._moved = on_a_thread(self._move_on, name=f"tfos-runs-{self.id}")
                while not wait([self._moved], _STEP_S).done:
                    on_step()
                self._moved.result()
            on_step()
        except KeyboardInterrupt:
            interrupted = True
            self._stop_at_once()
        except BaseException:
            self._stop_at_once()
            raise
        finally:
            self._finish()
        if self._fatal is not None:
            raise self._fatal
        results = self.results
        if interrupted or self.state.stopping:
            raise ParallelInterrupted(self.name, results, self.state.count(NodeState.DONE), noun=self.noun)
        return results

    def _move_on(self, on_step: Callable[[], None] = lambda: None) -> None:
        stopped = False
        while not self.state.over:
            if self._fatal is not None and not stopped:
                stopped = True
                self._stop_at_once()
            free, began = self._free_slots(), False
            while free > 0 and (entry := self._begin_next(free)) is not None:
                began = True
                free = free - entry.slots if self._proven else 0
            on_step()
            with self._changed:
                if not began and not self.state.over:
                    self._changed.wait(_STEP_S)

    def _stop_at_once(self) -> None:
        """Stop all within a short time; a second interrupt gives them no time at all."""
        try:
            self.stop(grace=min(self.config.grace, _INTERRUPT_GRACE_S))
        except KeyboardInterrupt:
            self.stop(grace=0.0)

    def stop(self, *, grace: float | None = None) -> None:
        """Stop all runs that go on, and begin no others; may be called twice, and from any thread."""
        with self.lock:
            self.state.stop()
            tries = list(self.state.going.values())
        self._tell()
        wait([on_a_thread(functools.partial(one.stop, grace), name=f"tfos-stop-{self.id}") for one in tries])

    def _finish(self) -> None:
        try:
            if self._moved is not None:
                wait([self._moved], _JOIN_S)
            for thread in list(self._threads):
                if thread.ident is not None:  # an interrupt may have come just before its start
                    thread.join(_JOIN_S)
            with self.lock:
                self._all_have_ended()
        finally:
            with self.lock:
                self._ended_s = time.time()
            self._recorder.finish()
            self._tell()
            try:
                self._recorder.join(LAST_RECORD_S)
            finally:  # also after another interrupt
                self._publisher.close()

    # ---- begin ------------------------------------------------------------------------------------------------------

    def _free_slots(self) -> int:
        state = self.state
        with self.lock:
            first, tries = state.next, list(state.going.values())
        if first is None or time.monotonic() < self._not_before_s:
            return 0
        taken = sum(one.entry.slots for one in tries)
        launching = sum(one.entry.slots for one in tries if not one.has_slots)
        # The first one has the executors looked at, for all.
        self._proven = self._proven or any(one.has_slots for one in tries)
        if not self._proven and tries:
            return 0
        try:
            return self._slots.free(taken, launching, first.slots)
        except Exception as error:  # noqa: BLE001 - the session has gone, or its JVM: py4j raises many kinds
            with self.lock:
                state.fail_waiting(f"Spark does not answer any more: {type(error).__name__}: {error}")
            self._tell()
            return 0

    def _begin_next(self, free: int) -> RunEntry | None:
        """Begin the next run if so many slots are enough for it, and return it."""
        with self.lock:
            entry = self.state.next
            try:
                if entry is None or self._size_of(entry) > free:
                    return None  # it needs more, or all were stopped meanwhile
                self._begins(entry)
            except TfosError as error:
                self._refute(error)
                return None
            self.state.begin(time.time())
            name = f"{entry.index}.{entry.tries}" if entry.tries > 1 else str(entry.index)
            entry.part = self.files.make_part(name)
            one = self.state.going[entry.index] = RunTry(self, entry)
        self._tell()
        if self.launcher.runs_inline:
            self._execute(one)
        else:
            name = f"tfos-run-{self.id}.{entry.index}"
            thread = threading.Thread(target=self._execute, args=(one,), name=name, daemon=True)
            self._threads.add(thread)
            thread.start()
        return entry

    def make_cluster(self, entry: RunEntry) -> Cluster:
        """Return the cluster of a run's try that begins, which is not launched yet."""
        config = self.config_of(entry)
        if config.gpus is None:
            config = dataclasses.replace(config, gpus=ALL)  # else the first run would take all
        map_fun, args = self.call_of(entry)
        assert entry.part is not None
        return Cluster(
            config,
            (map_fun, args),
            launcher=self.launcher,
            node_specs=node_specs_of(config, self.launcher),
            files=entry.part,
            payload=b"" if self.launcher.runs_inline else pack(map_fun, args, with_modules=True),
            spark=self._session,
            hosts=self._hosts,
            stores=self._stores,
            chief_stays_here=False,  # runs would collide there
            published=False,
        )

    # ---- end --------------------------------------------------------------------------------------------------------

    def is_cut(self, entry: RunEntry, order: int, report: MetricsReported) -> bool:
        """Return whether a run is to be cut, as a node has reported; ``order`` is 0 for the one that leads."""
        with self.lock:
            return self._judge(entry, order, report) and not self.state.stopping

    def _execute(self, one: RunTry) -> None:
        ending = Ending(NodeState.STOPPED)
        try:
            ending = one.execute()
        finally:
            self._record(one, ending, time.time())
            self._threads.discard(threading.current_thread())

    def _record(self, one: RunTry, ending: Ending, now_s: float) -> None:
        entry = one.entry
        with self._changed:
            entry.node = one.node()
            if (error := ending.fatal) is not None and self._proven and self._one_has_run:
                # Others have run: it has met this one only.
                ending = Ending.of(RunFailed(run=-1, kind="lost", error=type(error).__name__, message=str(error)))
            if (failure := ending.failure) is not None:
                failure.run, failure.argument, failure.noun = entry.index, entry.args, self.noun
                failure.tries, failure.seconds = entry.tries, entry.seconds(now_s) or 0.0
            if ending.state is NodeState.WAITING:
                self._not_before_s = time.monotonic() + _NO_SLOT_S
            elif ending.state is not NodeState.STOPPED:
                self._proven = self._one_has_run = True
            self.state.end(entry, ending, now_s)
            self._refute(ending.fatal)
            if entry.state.ended:
                self._refute(self._has_ended(entry))
            self._changed.notify_all()
        self._tell()

    def _refute(self, error: TfosError | None) -> None:
        """Let no run begin any more, if there is a proof that none can succeed."""
        if error is not None:
            self._fatal = self._fatal or error
            self.state.stop()

    # ---- for displays and records -----------------------------------------------------------------------------------

    @property
    def run_dir(self) -> Path:
        """The folder that holds those of the runs."""
        return self.files.path

    @property
    def ended(self) -> bool:
        """Whether all runs have ended."""
        return self._ended_s is not None

    @property
    def results(self) -> Any:
        """What the runs have returned so far: `ParallelResults`, or what a search has found."""
        with self.lock:
            return ParallelResults([dataclasses.replace(entry, node=None) for entry in self.state.entries])

    def failure(self) -> TfosError:
        """Return the error that tells the failures."""
        results = self.results
        return self._failed_with(failed=results.failures.values(), results=results)

    def view(self) -> ClusterView:
        """Return all that can be seen of the runs now, as one value."""
        now_s = time.time()
        with self.lock:
            nodes = tuple(self._node(entry, now_s) for entry in self._in_order())
            notes = tuple(self.history.notes)
            if self._slots.is_waiting and self.state.next is not None and not self.ended:
                total = f"of {self._slots.total} " if self._slots.total else ""
                notes = (*notes, f"Waiting for a free task slot {total}in Spark.")
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
                notes=notes,
                of_runs=True,
                search=self._search_facts(),
            )

    def _state(self) -> RunState:
        if self._ended_s is None:
            return RunState.STOPPING if self.state.stopping else RunState.RUNNING
        if self.state.count(NodeState.STOPPED):
            return RunState.STOPPED
        return RunState.FAILED if self._count_failed() else RunState.DONE

    def _reason(self) -> str:
        failed = self._count_failed()
        return f"{failed} of {len(self.state.entries)} {self.noun}s failed" if failed and self.ended else ""

    def _node(self, entry: RunEntry, now_s: float) -> NodeView:
        going = self.state.going.get(entry.index)
        node = going.node() if going is not None else entry.node
        node = node or NodeView(self.name_of(entry.index), "run", entry.index, is_chief=False)
        part = entry.part
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
                log=str(part.log(self._leader).relative_to(self.run_dir)) if part is not None else "",
                **self._facts_of(entry),
            ),
        )

    def name_of(self, index: int) -> str:
        """Return what displays call a run."""
        return f"{self.noun} {index}"

    def logs(self, node: str | None = None, tail: int | None = None) -> str:
        """Return what a run's last try has printed, or each run's, with its name before each line."""
        if node is not None:
            return read_log(self.log_path(node), tail)
        names = [self.name_of(entry.index) for entry in self.state.entries]
        return read_logs({name: self.log_path(name) for name in names}, tail)

    def log_path(self, node: str) -> Path:
        """Return the log file of the leading node of a run's last try; raises KeyError for an unknown run."""
        number = node.removeprefix(f"{self.noun} ")
        if not number.isdigit() or int(number) >= len(self.state.entries):
            raise KeyError(f"no {self.noun} {node!r}; there are {len(self.state.entries)}, from '{self.noun} 0' on")
        return self.files_of(int(number)).log(self._leader)

    def files_of(self, index: int) -> RunDir:
        """Return the folder of a run's last try."""
        return self.state.entries[index].part or self.files

    def reports_after(self, count: int = 0) -> tuple[list[MetricsReported], int]:
        """Return the metrics reported after the first ``count`` ones, and how many there have been in all."""
        return self.history.metrics_after(count)

    def _tell(self) -> None:
        with self.lock:
            state, reason = self._state(), self._reason()
        self.bus.publish(StateChanged(time_s=time.time(), state=state, reason=reason))

    def _on_events(self, *events: Event) -> None:
        self.history.record(*events)
        for event in events:
            self._recorder.on_event(event)


def _going_state(state: NodeState) -> NodeState:
    """Return how far a run is that goes on: it has not ended before its end is recorded, as its rows may still come."""
    return {NodeState.STOPPED: NodeState.STOPPING, NodeState.DONE: NodeState.RUNNING}.get(state, state)
