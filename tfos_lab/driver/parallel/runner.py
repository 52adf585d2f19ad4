"""Moves independent runs on: begins as many as there are slots, records how each ends, until all have ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tfos_lab.driver.parallel.feeder import Feed
from tfos_lab.driver.parallel.nodes import NodeMaker
from tfos_lab.driver.parallel.policy import RunPolicy
from tfos_lab.driver.parallel.results import ParallelResults
from tfos_lab.driver.parallel.runs import ParallelRuns
from tfos_lab.driver.parallel.state import RunEntry
from tfos_lab.driver.parallel.tries import CutShort, Ending, Failed, Fatal, NoSlot, Returned, RunTry, Stopped
from tfos_lab.driver.state.events import MetricsReported
from tfos_lab.errors import RunFailed, TfosError

# Short, so that ■ and the display react quickly.
_STEP_S = 0.05
# After ■ nobody wants to wait: runs get no more than this to shut down.
_INTERRUPT_GRACE_S = 1.0
_JOIN_S = 5.0
# After a run that found no slot, Spark is asked again so much later.
_NO_SLOT_S = 0.5


class Runner:
    """Runs all runs of one call, each try on a thread of its own (``tfos-run-…``), or inline on the calling one.

    Unless they are inline, another thread (``tfos-runs-…``) begins them, and the calling one only waits: an interrupt
    that meets a call to Spark may be lost, as py4j turns it into another error, or Python forgets what is raised while
    it frees an object.

    Parameters
    ----------
    runs : ParallelRuns
        The runs.
    nodes : NodeMaker
        Makes their nodes.
    timeout_s : float or None
        How long each may run.
    policy : RunPolicy, optional
        Decides how large a run is, and whether it is cut.
    feed : callable, optional
        Feeds the nodes of each run their rows, once they run.
    """

    def __init__(
        self,
        runs: ParallelRuns,
        nodes: NodeMaker,
        *,
        timeout_s: float | None = None,
        policy: RunPolicy | None = None,
        feed: Feed | None = None,
    ) -> None:
        self._runs = runs
        self._state = runs.state
        self._nodes = nodes
        self._timeout_s = timeout_s
        self._policy = policy or RunPolicy()
        self._feed = feed
        self._ended = threading.Condition(runs.lock)
        self._threads: set[threading.Thread] = set()
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._fatal: TfosError | None = None
        self._has_stopped = False
        # The executors are fit, or there are none; a function has run and ended.
        self._proven = not runs.launcher.spans_hosts
        self._one_has_run = False
        self._not_before_s = 0.0

    def run(self, on_step: Callable[[], None] = lambda: None) -> ParallelResults:
        """Run all to their ends, and return what became of each; ``on_step`` is called often on this thread.

        Raises
        ------
        ParallelInterrupted
            If the user interrupted or stopped them: all are stopped.
        TfosError
            If no run can succeed, as executors lack a package or the session is dead: all are stopped.
        """
        interrupted = False
        try:
            self._runs.publish()
            self._runs.tell()
            if self._runs.launcher.runs_inline:
                self._run(on_step)
            else:
                self._run_beside(on_step)
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
        if interrupted or self._state.stopping:
            raise self._runs.interruption()
        return self._runs.results

    def _run_beside(self, on_step: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._move_on, name=f"tfos-runs-{self._runs.id}", daemon=True)
        self._threads.add(thread)
        thread.start()
        while not self._over.wait(_STEP_S):
            on_step()
        if self._error is not None:
            raise self._error

    def _move_on(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - raised where the runs are waited for
            self._error = error
        finally:
            self._over.set()

    def _run(self, on_step: Callable[[], None] = lambda: None) -> None:
        while not self._state.over:
            if self._fatal is not None and not self._has_stopped:
                self._has_stopped = True
                self._stop_at_once()
            began = self._begin_some()
            on_step()
            with self._ended:
                if not began and not self._state.over:
                    self._ended.wait(_STEP_S)

    def _stop_at_once(self) -> None:
        """Stop all within a short time; a second interrupt gives them no time at all."""
        try:
            self._runs.stop(grace=min(self._runs.config.grace, _INTERRUPT_GRACE_S))
        except KeyboardInterrupt:
            self._runs.stop(grace=0.0)

    def _finish(self) -> None:
        try:
            for thread in list(self._threads):
                if thread.ident is not None:  # an interrupt may have come just before its start
                    thread.join(_JOIN_S)
            with self._runs.lock:
                self._policy.close()
        finally:
            self._runs.end()

    # ---- begin ------------------------------------------------------------------------------------------------------

    def _begin_some(self) -> bool:
        """Begin as many runs as there are slots; return whether any has begun."""
        free, begun = self._free_slots(), False
        while free > 0 and (entry := self._begin_next(free)) is not None:
            begun = True
            free = free - entry.slots if self._proven else 0
        return begun

    def _free_slots(self) -> int:
        runs, state = self._runs, self._state
        if not state.waiting or time.monotonic() < self._not_before_s:
            return 0
        with runs.lock:
            tries = list(runs.tries.values())
            launching = sum(state.entries[one.index].slots for one in tries if not one.has_slots)
            taken, wanted = state.taken, state.next_slots
        # The first one has the executors looked at, for all.
        self._proven = self._proven or any(one.has_slots for one in tries)
        if not self._proven and tries:
            return 0
        try:
            return runs.slots.free(taken, launching, wanted)
        except Exception as error:  # noqa: BLE001 - the session has gone, or its JVM: py4j raises many kinds
            self._give_up(f"Spark does not answer any more: {type(error).__name__}: {error}")
            return 0

    def _give_up(self, message: str) -> None:
        with self._runs.lock:
            self._state.fail_waiting(message)
        self._runs.tell()

    def _begin_next(self, free: int) -> RunEntry | None:
        """Begin the next run that fits in so many slots, and return it."""
        with self._runs.lock:
            index = self._choose(free)
            if index is None:
                return None  # none fits, or all were stopped meanwhile
            one = self._begin(self._state.entries[self._state.begin(time.time(), index)])
        self._runs.tell(at_once=False)
        if self._runs.launcher.runs_inline:
            self._execute(one)
        else:
            name = f"tfos-run-{self._runs.id}.{index}"
            thread = threading.Thread(target=self._execute, args=(one,), name=name, daemon=True)
            self._threads.add(thread)
            thread.start()
        return self._state.entries[index]

    def _choose(self, free: int) -> int | None:
        try:
            index = self._state.fitting(free, self._policy.size)
            if index is not None:
                self._policy.prepare(self._state.entries[index])
            return index
        except TfosError as error:
            self._refute(error)
            return None

    def _begin(self, entry: RunEntry) -> RunTry:
        runs, index = self._runs, entry.index
        extra_env, part = runs.slots.environ(index, entry.slots), runs.make_part(index)
        one = runs.tries[index] = RunTry(
            index,
            runs.name_of(index),
            lambda: self._nodes.make(index, part, extra_env),
            runs.bus.publish,
            judge=lambda order, report: self.judge(index, order, report),
            feed=self._feed,
            timeout_s=self._timeout_s,
            may_queue=runs.launcher.needs_session,
        )
        return one

    def judge(self, index: int, order: int, report: MetricsReported) -> bool:
        """Return whether a run is to be cut, as a node has reported; see `RunPolicy.reported`."""
        with self._runs.lock:
            return self._policy.reported(self._state.entries[index], order, report) and not self._state.stopping

    # ---- end --------------------------------------------------------------------------------------------------------

    def _execute(self, one: RunTry) -> None:
        ending: Ending = Stopped()
        try:
            ending = one.execute()
        finally:
            self._record(one, ending)
            self._threads.discard(threading.current_thread())

    def _record(self, one: RunTry, ending: Ending) -> None:
        with self._ended:
            self._runs.keep(one.index)
            self._runs.slots.release(one.index)
            self._change(one.index, ending, time.time())
            entry = self._state.entries[one.index]
            if entry.state.ended:
                self._policy.ended(entry, entry.state)
            self._ended.notify_all()
        self._runs.tell(at_once=False)

    def _change(self, index: int, ending: Ending, now_s: float) -> None:
        if isinstance(ending, Returned | Failed | CutShort):
            self._proven = self._one_has_run = True
        match ending:
            case Returned(value=value):
                self._state.returned(index, value, now_s)
                self._refute(self._policy.returned(self._state.entries[index], value))
            case Failed(failure=failure):
                self._state.failed(index, self._complete(index, failure, now_s), now_s)
            case NoSlot():
                self._not_before_s = time.monotonic() + _NO_SLOT_S
                self._state.put_back(index)
            case Stopped():
                self._state.stopped(index, now_s)
            case CutShort():
                self._state.cut(index, now_s)
            case Fatal(error=error) if not (self._proven and self._one_has_run):
                self._state.stopped(index, now_s)
                self._refute(error)
            case Fatal(error=error):
                failure = RunFailed(run=index, kind="lost", error=type(error).__name__, message=str(error))
                self._state.failed(index, self._complete(index, failure, now_s), now_s)

    def _refute(self, error: TfosError | None) -> None:
        """Let no run begin any more, if there is a proof that none can succeed."""
        if error is not None:
            self._fatal = self._fatal or error
            self._state.stop()

    def _complete(self, index: int, failure: RunFailed, now_s: float) -> RunFailed:
        entry = self._state.entries[index]
        failure.run, failure.argument, failure.tries, failure.noun = index, entry.args, entry.tries, self._runs.noun
        failure.seconds = entry.seconds(now_s) or 0.0
        return failure
