"""All independent runs of one call: begins as many as there are slots, records how each ends, and shows them.

`make_runs` checks what is asked for. To displays and other processes they are one run, with a row for each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import time
from collections import deque
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
from tfos_lab.driver.bus import Bus, Subscription
from tfos_lab.driver.cluster import Cluster
from tfos_lab.driver.history import History
from tfos_lab.driver.logs import read_log, read_logs
from tfos_lab.driver.parallel.results import ParallelResults, ParallelRun, short
from tfos_lab.driver.parallel.slots import Slots, slots_for
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
    LogText,
    MetricsReported,
    NodeView,
    RunFacts,
    StateChanged,
)
from tfos_lab.errors import (
    ClusterEnded,
    ConfigError,
    ExecutorMismatch,
    LaunchFailed,
    NodeFailed,
    NoSession,
    NotAllAtOnce,
    NotEnoughGpus,
    NotEnoughSlots,
    ParallelFailed,
    ParallelInterrupted,
    PayloadError,
    ReservationTimeout,
    RunFailed,
    TfosError,
    WaitTimeout,
)
from tfos_lab.launchers.spark.slots import await_slots
from tfos_lab.node.traceback_text import format_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Gives rows to the nodes of a run, and returns when they have stored all.
Feed = Callable[[Cluster], object]
# How a try has ended, with what the function returned, or why it failed. `NodeState.WAITING` means that no slot, or no
# GPU, was free after all: it does not count.
Ending = tuple[NodeState, Any]

# Short, so that ■ and the display react quickly.
_STEP_S = 0.05
# How often what the nodes of a run report is passed on.
_REPORTS_S = 0.1
# After ■, and when they are cut, runs get no more than this to shut down.
_SHORT_GRACE_S = 1.0
# A feed whose node has ended cancels Spark's job, and is over soon, as a run is that was stopped.
_JOIN_S = 5.0
# After a run that found no slot, Spark is asked again so much later.
_NO_SLOT_S = 0.5
# These errors, before the nodes run, would meet every other run as well.
_FATAL = (ConfigError, ExecutorMismatch, NoSession, PayloadError)


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
        # Each run is packed when it begins; what cannot be packed raises now.
        pack(map_fun, args, limit_bytes=LIMIT_BYTES * max(1, len(args)))
    places = slots_for(launcher, session, limit=slots, gpus=config.gpus)
    if at_once:
        if session is not None:
            await_slots(session, len(args))
        free = places.free(0, 0)
        if free < len(args):
            raise NotAllAtOnce(wanted=len(args), free=free, total=max(places.total, free))
    runs = [ParallelRun(index, short(one), (map_fun, one), config) for index, one in enumerate(args)]
    return ParallelRuns(
        map_fun, runs, config, launcher, session, slots=places, retries=retries, timeout_s=timeout, feed=feed
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


class InlineCut(BaseException):
    """Ends the function of an inline run that is cut: it runs on the very thread that would stop it."""


class ParallelRuns:
    """The runs of one call. `run` moves them on; the rest may be called from any thread meanwhile.

    Each try has its own thread (``tfos-run-…``), or runs inline on the calling one. Unless they are inline, another
    thread (``tfos-runs-…``) begins them, and the calling one only waits: an interrupt that meets a call to Spark may be
    lost, as py4j turns it into another error, or Python forgets what is raised while it frees an object.

    What is known of the `runs` changes under `lock`; while they are `stopping`, none begins any more. ``common`` is
    what all get, to be recorded, and `noun` what one of them is called.
    """

    noun = "run"
    _failed_with: ClassVar[type[ParallelFailed]] = ParallelFailed

    def __init__(
        self,
        map_fun: Callable[..., Any],
        runs: Sequence[ParallelRun],
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
        self.map_fun, self.config, self.launcher = map_fun, config, launcher
        self.name: str = config.name
        self.inputs: dict[str, Plain] = plain_inputs(map_fun, common)
        self._session, self._hosts, self._stores = session, driver_hosts(session, launcher), stores_of(session)
        self._slots, self._retries, self._timeout_s, self._feed = slots, retries, timeout_s, feed
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
        # Which wait, in the order in which they begin, and which go on.
        self.runs = runs
        self.lock = threading.RLock()
        self.stopping = False
        self._changed = threading.Condition(self.lock)
        self._waiting = deque(runs)
        self._going: dict[int, ParallelRun] = {}
        self._fatal: TfosError | None = None
        self._one_has_run = False
        self._not_before_s = 0.0

    # ---- to their ends ----------------------------------------------------------------------------------------------

    def run(self, on_step: Callable[[], None] = lambda: None) -> Any:
        """Run all to their ends, and return the results; ``on_step`` is called often on this thread.

        Raises ParallelInterrupted if the user interrupted or stopped them, and a TfosError if no run can succeed, as
        executors lack a package or the session is dead: all are stopped.
        """
        interrupted = False
        moved: Future[None] | None = None
        try:
            self._recorder.start()
            self._publisher.publish()
            self._tell()
            if self.launcher.runs_inline:
                self._move_on(on_step)
            else:
                moved = on_a_thread(self._move_on, name=f"tfos-runs-{self.id}")
                while not wait([moved], _STEP_S).done:
                    on_step()
                moved.result()
            on_step()
        except KeyboardInterrupt:
            interrupted = True
            self._stop_at_once()
        except BaseException:
            self._stop_at_once()
            raise
        finally:
            self._finish(moved)
        if self._fatal is not None:
            raise self._fatal
        results = self.results
        if interrupted or self.stopping:
            raise ParallelInterrupted(self.name, results, self._count(NodeState.DONE), noun=self.noun)
        return results

    def _move_on(self, on_step: Callable[[], None] = lambda: None) -> None:
        stopped = False
        while not self._are_over():
            if self._fatal is not None and not stopped:
                stopped = True
                self._stop_at_once()
            free, began = self._free_slots(), False
            while free > 0 and (run := self._begin_next(free)) is not None:
                began = True
                free -= run.slots
            on_step()
            with self._changed:
                if not began and not self._are_over():
                    self._changed.wait(_STEP_S)

    def _are_over(self) -> bool:
        with self.lock:
            return not self._waiting and not self._going

    def _stop_at_once(self) -> None:
        """Stop all within a short time; a second interrupt gives them no time at all."""
        try:
            self.stop(grace=min(self.config.grace, _SHORT_GRACE_S))
        except KeyboardInterrupt:
            self.stop(grace=0.0)

    def stop(self, *, grace: float | None = None) -> None:
        """Stop all runs that go on, and begin no others; may be called twice, and from any thread."""
        with self.lock:
            self._begin_no_more()
            for run in self._going.values():
                run.is_stopped = True
            clusters = [run.cluster for run in self._going.values() if run.cluster is not None]
            self._tell()
        name = f"tfos-stop-{self.id}"
        wait([on_a_thread(functools.partial(cluster.stop, grace=grace), name=name) for cluster in clusters])

    def _begin_no_more(self, fatal: TfosError | None = None) -> None:
        """Let no run begin any more, as the user has stopped them, or an error proves that none can succeed."""
        self.stopping = True
        self._fatal = self._fatal or fatal
        for run in self._waiting:  # those that have been tried come to what their last try came to
            run.state = NodeState.STOPPED if run.failure is None else _state_after(run.failure)
        self._waiting.clear()

    def _finish(self, moved: Future[None] | None) -> None:
        try:
            if moved is not None:
                wait([moved], _JOIN_S)
            with self._changed:
                self._changed.wait_for(lambda: not self._going, _JOIN_S)
        finally:
            with self.lock:
                for run in self._going.values():  # it has taken too long to stop
                    run.state = NodeState.STOPPED
                self._ended_s = time.time()
                self._recorder.finish()
                self._tell()
            try:
                self._recorder.join(LAST_RECORD_S)
            finally:  # also after another interrupt
                self._publisher.close()

    # ---- begin ------------------------------------------------------------------------------------------------------

    def _free_slots(self) -> int:
        with self.lock:
            first, going = next(iter(self._waiting), None), list(self._going.values())
        if first is None or time.monotonic() < self._not_before_s:
            return 0
        launching = [run for run in going if not (run.has_run or self._node_of(run).state.is_present)]
        # The first one has the executors looked at, for all.
        proven = self._one_has_run or not self.launcher.spans_hosts or len(launching) < len(going)
        if not proven and going:
            return 0
        try:
            free = self._slots.free(_slots_in(going), _slots_in(launching), first.slots)
            return free if proven else min(free, first.slots)
        except Exception as error:  # noqa: BLE001 - the session has gone, or its JVM: py4j raises many kinds
            message = f"Spark does not answer any more: {type(error).__name__}: {error}"
            with self.lock:
                for run in self._waiting:
                    run.state, run.failure = NodeState.LOST, run.failure or self._failure(run, "lost", message)
                self._waiting.clear()
                self._tell()
            return 0

    def _begin_next(self, free: int) -> ParallelRun | None:
        """Begin the next run if the free slots are enough for it, and return it."""
        with self.lock:
            if not self._waiting:
                return None  # all were stopped meanwhile
            run = self._waiting[0]
            try:
                if self._size_of(run) > free:
                    return None
            except TfosError as error:
                self._begin_no_more(error)
                return None
            self._waiting.popleft()
            self._begin(run)
            self._tell()
        if self.launcher.runs_inline:
            self._execute(run)
        else:
            name = f"tfos-run-{self.id}.{run.index}"
            threading.Thread(target=self._execute, args=(run,), name=name, daemon=True).start()
        return run

    def _size_of(self, run: ParallelRun) -> int:
        """Return how many slots a run takes that may begin next."""
        return run.slots

    def _begin(self, run: ParallelRun) -> None:
        """Begin the next try of a run."""
        run.tries += 1
        run.began_s, run.ended_s = time.time(), None
        run.cluster, run.fed, run.node = None, None, None
        run.has_run, run.is_cut, run.is_stopped = False, False, False
        run.part = self.files.make_part(f"{run.index}.{run.tries}" if run.tries > 1 else str(run.index))
        self._going[run.index] = run

    # ---- one try ----------------------------------------------------------------------------------------------------

    def _execute(self, run: ParallelRun) -> None:
        ending: Ending = NodeState.STOPPED, None
        try:
            ending = self._try(run)
        finally:
            self._record(run, ending)

    def _try(self, run: ParallelRun) -> Ending:
        """Run a try to its end; raises nothing but what interrupts this process."""
        try:
            return self._launch(run)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever ended the nodes
            return self._ending_of(run, error)
        finally:
            if run.cluster is not None:
                run.cluster.stop(grace=0.0)
            if run.fed is not None:
                wait([run.fed], _JOIN_S)

    def _launch(self, run: ParallelRun) -> Ending:
        cluster = run.cluster = self._make_cluster(run)
        if self.stopping:
            return NodeState.STOPPED, None
        with cluster.bus.subscribe() as events:
            try:
                cluster.launch()
                cluster.wait_until_running()
                run.has_run = True
                if (feed := self._feed) is not None:  # beside this thread, which passes on what nodes report
                    run.fed = on_a_thread(lambda: _feed(feed, cluster), name=f"tfos-feed-{cluster.id}")
                return self._wait(run, cluster, events)
            finally:
                self._pass_on(run, cluster, events)

    def _make_cluster(self, run: ParallelRun) -> Cluster:
        config = run.config
        if config.gpus is None:
            config = dataclasses.replace(config, gpus=ALL)  # else the first run would take all
        assert run.part is not None
        return Cluster(
            config,
            run.call,
            launcher=self.launcher,
            node_specs=node_specs_of(config, self.launcher),
            files=run.part,
            payload=b"" if self.launcher.runs_inline else pack(*run.call, with_modules=True),
            spark=self._session,
            hosts=self._hosts,
            stores=self._stores,
            chief_stays_here=False,  # runs would collide there
            published=False,
        )

    def _wait(self, run: ParallelRun, cluster: Cluster, events: Subscription) -> Ending:
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        while True:
            if run.fed is None or _has_fed(run.fed):
                with contextlib.suppress(WaitTimeout):
                    cluster.wait(_REPORTS_S)
                    return NodeState.DONE, cluster.results.get(self._leader)
            self._pass_on(run, cluster, events)
            if run.is_cut:
                cluster.stop(grace=min(cluster.config.grace, _SHORT_GRACE_S))
            if deadline is not None and time.monotonic() > deadline:
                if any(node.name == self._leader and node.state is NodeState.DONE for node in cluster.nodes):
                    continue
                cluster.stop()
                message = f"it was stopped, as it had not returned after timeout={self._timeout_s:g}"
                tail = cluster.logs(self._leader, tail=20)
                return NodeState.FAILED, self._failure(run, "timed out", message, log_tail=tail)

    def _pass_on(self, run: ParallelRun, cluster: Cluster, events: Subscription) -> None:
        """Tell displays what the leading node has printed and reported, under the run's name; have reports judged."""
        for event in events.take():
            if isinstance(event, MetricsReported) and not self.launcher.runs_inline:  # else judged as it was made
                others = [node.name for node in cluster.nodes if node.name != self._leader]
                self.take(run, [self._leader, *others].index(event.node), event)
            if isinstance(event, LogText | MetricsReported) and event.node == self._leader:
                self.bus.publish(dataclasses.replace(event, node=self.name_of(run.index)))

    def take(self, run: ParallelRun, order: int, report: MetricsReported) -> None:
        """A node of a run has reported; ``order`` is 0 for the one that leads. A search may cut the run."""

    def _ending_of(self, run: ParallelRun, error: BaseException) -> Ending:
        """Return how a try has ended whose nodes did not return."""
        is_here = not self.launcher.spans_hosts
        # Others took the GPUs that were free here; a host of executors may have too few.
        if isinstance(error, NotEnoughSlots) or (is_here and isinstance(error, NotEnoughGpus)):
            return NodeState.WAITING, None
        if run.is_stopped:
            return NodeState.STOPPED, None
        if run.is_cut:  # what was under way, such as a feed, has ended with the nodes
            return NodeState.STOPPED_EARLY, None
        if isinstance(error, ClusterEnded):
            return NodeState.STOPPED, None
        if isinstance(error, ReservationTimeout) and self.launcher.needs_session:
            return NodeState.WAITING, None  # the nodes have only waited for Spark's slots
        if isinstance(error, _FATAL) and (not run.has_run or isinstance(error, ConfigError)):
            with self.lock:
                if not self._one_has_run:
                    self._begin_no_more(error)
                    return NodeState.STOPPED, None
            # Others have run: it has met this one only.
            return NodeState.LOST, self._failure(run, "lost", str(error), error=type(error).__name__)
        failure = self._failure(run, **_what_failed(error, run.cluster))
        return _state_after(failure), failure

    def _failure(self, run: ParallelRun, kind: str, message: str, **more: str) -> RunFailed:
        seconds = run.seconds(time.time()) or 0.0
        told = {"kind": kind, "message": message, **more}
        return RunFailed(run=run.index, argument=run.args, tries=run.tries, seconds=seconds, noun=self.noun, **told)

    def _record(self, run: ParallelRun, ending: Ending) -> None:
        """Record how a try has ended.

        If it has failed, another one follows after those that wait already, unless there have been enough; if it found
        no slot, it is the next one to begin. Why an earlier try has failed stays where this one was stopped.
        """
        with self._changed:
            run.node, run.cluster, run.fed = self._node_of(run), None, None
            del self._going[run.index]
            run.state, told = ending
            if run.state is NodeState.WAITING:
                run.tries, run.began_s = run.tries - 1, None
                self._not_before_s = time.monotonic() + _NO_SLOT_S
                self._waiting.appendleft(run)
            else:
                run.ended_s = time.time()
            if run.state not in (NodeState.WAITING, NodeState.STOPPED):
                self._one_has_run = True
                run.value, run.failure = (told, None) if run.state is NodeState.DONE else (None, told)
            if run.state.is_broken and run.tries <= self._retries:
                run.state = NodeState.WAITING
                self._waiting.append(run)
            if self.stopping:
                self._begin_no_more()
            self._changed.notify_all()
            self._tell()

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
            return ParallelResults(self.runs)

    def failure(self) -> TfosError:
        """Return the error that lists the failures."""
        results = self.results
        return self._failed_with(failed=results.failures.values(), results=results)

    def view(self) -> ClusterView:
        """Return all that can be seen of the runs now, as one value."""
        with self.lock:
            notes = tuple(self.history.notes)
            if self._slots.is_waiting and self._waiting:
                total = f"of {self._slots.total} " if self._slots.total else ""
                notes = (*notes, f"Waiting for a free task slot {total}in Spark.")
            return ClusterView(
                cluster_id=self.id,
                name=self.name,
                state=self._state(),
                launcher=self.launcher.name,
                started_s=self._called_s,
                ended_s=self._ended_s,
                nodes=tuple(map(self._row_of, self.runs)),
                timings={},
                reason=self._reason(),
                notes=notes,
                of_runs=True,
            )

    def _state(self) -> RunState:
        if self._ended_s is None:
            return RunState.STOPPING if self.stopping else RunState.RUNNING
        if self._count(NodeState.STOPPED):
            return RunState.STOPPED
        return RunState.FAILED if self._count_failed() else RunState.DONE

    def _reason(self) -> str:
        failed = self._count_failed()
        return f"{failed} of {len(self.runs)} {self.noun}s failed" if failed and self.ended else ""

    def _count(self, *states: NodeState) -> int:
        return sum(run.state in states for run in self.runs)

    def _count_failed(self) -> int:
        """Return how many runs have failed, if that makes the whole a failure."""
        return self._count(NodeState.FAILED, NodeState.LOST)

    def _row_of(self, run: ParallelRun) -> NodeView:
        is_going = run.index in self._going
        node = self._node_of(run) if is_going or run.node is None else run.node
        # It has not ended before its end is recorded, as its rows may still come.
        going = {NodeState.STOPPED: NodeState.STOPPING, NodeState.DONE: NodeState.RUNNING}.get(node.state, node.state)
        return dataclasses.replace(
            node,
            state=going if is_going else run.state,
            detail=run.failure.summary if run.failure is not None else node.detail,
            run=self._facts_of(run),
        )

    def _facts_of(self, run: ParallelRun) -> RunFacts:
        seconds = run.seconds(time.time())
        # Whole seconds while it runs: the page gets what has changed.
        shown = seconds if seconds is None or run.ended_s is not None else float(int(seconds))
        log = str(run.part.log(self._leader).relative_to(self.run_dir)) if run.part is not None else ""
        return RunFacts(run.args, going=run.index in self._going, tries=run.tries, seconds=shown, log=log)

    def _node_of(self, run: ParallelRun) -> NodeView:
        """Return a run's nodes as one: what the leading one reports, as far as the last is, and where all are."""
        cluster = run.cluster
        nodes = cluster.nodes if cluster is not None else ()
        blank = NodeView(self.name_of(run.index), "run", run.index, is_chief=False)
        chief = next((node for node in nodes if node.name == self._leader), None)
        if chief is None:
            return blank
        own = dataclasses.replace(
            chief, name=blank.name, job_name="run", task_index=run.index, is_chief=False, address=""
        )
        if len(nodes) == 1:
            return own
        return dataclasses.replace(
            own,
            state=min((node.state for node in nodes), key=lambda state: state.order),
            host=_joined(node.host for node in nodes),
            executor=_joined(node.executor for node in nodes),
            gpus=tuple(gpu for node in nodes for gpu in node.gpus),
            pid=0,
            rows=sum(node.rows for node in nodes),
            hung="; ".join(f"{node.name}: {node.hung}" for node in nodes if node.hung),
        )

    def name_of(self, index: int) -> str:
        """Return what displays call a run."""
        return f"{self.noun} {index}"

    def logs(self, node: str | None = None, tail: int | None = None) -> str:
        """Return what a run's last try has printed, or each run's, with its name before each line."""
        if node is not None:
            return read_log(self.log_path(node), tail)
        names = [self.name_of(run.index) for run in self.runs]
        return read_logs({name: self.log_path(name) for name in names}, tail)

    def log_path(self, node: str) -> Path:
        """Return the log file of the leading node of a run's last try; raises KeyError for an unknown run."""
        number = node.removeprefix(f"{self.noun} ")
        if not number.isdigit() or int(number) >= len(self.runs):
            raise KeyError(f"no {self.noun} {node!r}; there are {len(self.runs)}, from '{self.noun} 0' on")
        return self.files_of(int(number)).log(self._leader)

    def files_of(self, index: int) -> RunDir:
        """Return the folder of a run's last try."""
        return self.runs[index].part or self.files

    def reports_after(self, count: int = 0) -> tuple[list[MetricsReported], int]:
        """Return the metrics reported after the first ``count`` ones, and how many there have been in all."""
        return self.history.metrics_after(count)

    def _tell(self) -> None:
        with self.lock:
            self.bus.publish(StateChanged(time_s=time.time(), state=self._state(), reason=self._reason()))

    def _on_events(self, *events: Event) -> None:
        self.history.record(*events)
        for event in events:
            self._recorder.on_event(event)


def _slots_in(runs: Iterable[ParallelRun]) -> int:
    return sum(run.slots for run in runs)


def _state_after(failure: RunFailed) -> NodeState:
    return NodeState.LOST if failure.kind == "lost" else NodeState.FAILED


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(text for text in texts if text))


def _feed(feed: Feed, cluster: Cluster) -> None:
    """Feed the nodes of a run; the end of the cluster, or of the function's interest, is no error here."""
    with contextlib.suppress(ClusterEnded):
        feed(cluster)


def _has_fed(fed: Future[None]) -> bool:
    """Return whether all rows have been fed, or no more are wanted; raise why they were not."""
    return bool(wait([fed], _REPORTS_S).done) and fed.result() is None


def _what_failed(error: BaseException, cluster: Cluster | None) -> dict[str, str]:
    """Return the fields of the `RunFailed` for a run whose nodes ended with an error."""
    match error:
        case NodeFailed():
            where = f"{error.node}: " if cluster is not None and len(cluster.nodes) > 1 else ""
            cause = cluster.head.state.causes.first if cluster is not None else None
            # A process that a signal has ended was taken from outside.
            exited = "lost" if cause is not None and cause.gone else "exited"
            kinds = {"Exited": exited, "Lost": "lost", "LaunchFailed": "lost", "Hung": "hung"}
            return {
                "kind": kinds.get(error.kind, "raised"),
                "error": "" if error.kind in kinds else error.kind,
                "message": where + error.message,
                "traceback": error.traceback,
                "log_tail": error.log_tail,
            }
        case LaunchFailed() | ReservationTimeout():
            return {"kind": "lost", "message": str(error)}
        case SystemExit():
            return {"kind": "exited", "message": f"the function called sys.exit({error.code!r})"}
        case TfosError():
            return {"kind": "raised", "error": type(error).__name__, "message": str(error)}
    name, message, text = format_remote(error)
    return {"kind": "raised", "error": name, "message": message, "traceback": text}
