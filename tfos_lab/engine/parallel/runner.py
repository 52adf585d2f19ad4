"""Moves independent runs on: begins as many as there are slots, records how each ends, until all have ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from tfos_lab.engine.parallel.results import ParallelResults
from tfos_lab.engine.parallel.runs import ParallelRuns
from tfos_lab.engine.parallel.tries import Ending, Failed, Fatal, NoSlot, Returned, RunTry, Stopped
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.engine.runtime import ClusterRuntime
from tfos_lab.errors import ParallelInterrupted, RunFailed, TfosError

# Short, so that ■ and the display react quickly.
_STEP_S = 0.05
# After ■ nobody wants to wait: runs get no more than this to shut down.
_INTERRUPT_GRACE_S = 1.0
_JOIN_S = 5.0
# After a run that found no slot, Spark is asked again so much later.
_NO_SLOT_S = 0.5


class MakesNodes(Protocol):
    """Makes the runtime of a run's node: `tfos_lab.engine.parallel.nodes.NodeMaker`, or a fake."""

    def make(self, index: int, run_dir: RunDir, extra_env: Mapping[str, str]) -> ClusterRuntime:
        """Return the runtime of a run's next try, which is not launched yet."""
        ...


class Runner:
    """Runs all runs of one call, each try on a thread of its own (``tfos-run-…``), or inline on the calling one.

    Parameters
    ----------
    runs : ParallelRuns
        The runs.
    nodes : MakesNodes
        Makes their nodes.
    timeout_s : float or None
        How long each may run.
    feed : callable, optional
        Feeds a run's node its rows, once it runs.
    """

    def __init__(
        self,
        runs: ParallelRuns,
        nodes: MakesNodes,
        *,
        timeout_s: float | None = None,
        feed: Callable[[ClusterRuntime], None] | None = None,
    ) -> None:
        self._runs = runs
        self._state = runs.state
        self._nodes = nodes
        self._timeout_s = timeout_s
        self._feed = feed
        self._ended = threading.Condition(runs.lock)
        self._threads: set[threading.Thread] = set()
        self._fatal: TfosError | None = None
        self._proven = not runs.launcher.spans_hosts
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
        self._runs.publish()
        interrupted = False
        try:
            self._run(on_step)
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
            results = self._runs.results
            raise ParallelInterrupted(self._runs.name, results, results.done)
        return self._runs.results

    def _run(self, on_step: Callable[[], None]) -> None:
        self._runs.tell()
        while not self._state.over:
            began = self._begin_some()
            on_step()
            with self._ended:
                if not began and not self._state.over:
                    self._ended.wait(_STEP_S)
        on_step()

    def _stop_at_once(self) -> None:
        """Stop all within a short time; a second interrupt gives them no time at all."""
        try:
            self._runs.stop(grace_s=min(self._runs.config.grace_s, _INTERRUPT_GRACE_S))
        except KeyboardInterrupt:
            self._runs.stop(grace_s=0.0)

    def _finish(self) -> None:
        for thread in list(self._threads):
            thread.join(_JOIN_S)
        self._runs.end()

    # ---- begin ------------------------------------------------------------------------------------------------------

    def _begin_some(self) -> bool:
        """Begin as many runs as there are slots; return whether any has begun."""
        count = self._startable()
        for _ in range(count):
            self._begin_one()
        return count > 0

    def _startable(self) -> int:
        runs, state = self._runs, self._state
        if not state.waiting or time.monotonic() < self._not_before_s:
            return 0
        with runs.lock:
            tries = list(runs.tries.values())
        launching = sum(not one.has_slot for one in tries)
        # The first one has the executors looked at, for all.
        self._proven = self._proven or launching < len(tries)
        if not self._proven and tries:
            return 0
        try:
            free = runs.slots.free(len(tries), launching)
        except Exception as error:  # noqa: BLE001 - the session has gone, or its JVM: py4j raises many kinds
            self._give_up(f"Spark does not answer any more: {type(error).__name__}: {error}")
            return 0
        return min(state.waiting, free if self._proven else min(1, free))

    def _give_up(self, message: str) -> None:
        with self._runs.lock:
            self._state.fail_waiting(message)
        self._runs.tell()

    def _begin_one(self) -> None:
        runs = self._runs
        with runs.lock:
            if not self._state.waiting:
                return  # stopped meanwhile
            index = self._state.begin(time.time())
            extra_env, part = runs.slots.environ(index), runs.make_part(index)
            one = RunTry(
                index,
                runs.name_of(index),
                lambda: self._nodes.make(index, part, extra_env),
                runs.bus.publish,
                timeout_s=self._timeout_s,
                may_queue=runs.launcher.needs_session,
                feed=self._feed,
            )
            runs.tries[index] = one
        runs.tell(at_once=False)
        if runs.launcher.runs_inline:
            self._execute(one)
            return
        thread = threading.Thread(target=self._execute, args=(one,), name=f"tfos-run-{part.id}", daemon=True)
        self._threads.add(thread)
        thread.start()

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
            self._ended.notify_all()
        self._runs.tell(at_once=False)

    def _change(self, index: int, ending: Ending, now_s: float) -> None:
        match ending:
            case Returned(value=value):
                self._proven = True
                self._state.returned(index, value, now_s)
            case Failed(failure=failure):
                self._proven = True
                self._state.failed(index, self._complete(index, failure, now_s), now_s)
            case NoSlot():
                self._not_before_s = time.monotonic() + _NO_SLOT_S
                self._state.put_back(index)
            case Stopped():
                self._state.stopped(index, now_s)
            case Fatal(error=error) if not self._proven:
                self._fatal = error
                self._state.stopped(index, now_s)
                self._state.stop()
            case Fatal(error=error):
                failure = RunFailed(run=index, kind="lost", error=type(error).__name__, message=str(error))
                self._state.failed(index, self._complete(index, failure, now_s), now_s)

    def _complete(self, index: int, failure: RunFailed, now_s: float) -> RunFailed:
        entry = self._state.entries[index]
        failure.run, failure.argument, failure.tries = index, entry.args, entry.tries
        failure.seconds = entry.seconds(now_s) or 0.0
        return failure
