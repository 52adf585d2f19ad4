"""Every error that tfos_lab raises. Each says what happened with numbers, why, and what to do next.

    TfosError
    ├── ConfigError            (ValueError)       options that cannot work, all of them at once
    │   ├── NoRun              (KeyError)         no run of the history has that name, or several could be meant
    │   └── ParamError         (TypeError)        a value that a param of a Spark ML stage cannot have
    ├── PayloadError           (TypeError)        the function, or a value that it uses, cannot be sent to the nodes
    ├── NoSession              (RuntimeError)     there is no SparkSession, or it is dead
    ├── NotEnoughSlots         (RuntimeError)     Spark has fewer free task slots than nodes were asked for
    │   └── NotAllAtOnce       (RuntimeError)     instances were to run all at once, and there are too few slots
    ├── NotEnoughGpus          (RuntimeError)     hosts have fewer GPUs than their nodes were to have
    ├── NotEnoughRoom          (RuntimeError)     this machine cannot hold so many nodes
    ├── ExecutorMismatch       (RuntimeError)     executors lack a package or run another Python
    ├── ReservationTimeout     (TimeoutError)     fewer nodes than asked for reserved in time
    ├── LaunchFailed           (RuntimeError)     a node could not be started at all
    ├── NodeFailed             (RuntimeError)     the user's function failed on a node, or the node was lost
    │   └── CellFailed         (RuntimeError)     a cell failed on an interactive cluster, whose nodes go on
    ├── ClusterEnded           (RuntimeError)     the cluster that was asked for something has ended
    ├── WaitTimeout            (TimeoutError)     `wait(timeout=...)` ran out; the cluster goes on
    ├── RunFailed              (RuntimeError)     one of several independent runs failed
    ├── ParallelFailed         (RuntimeError)     some independent runs failed; it has the results of the others
    │   └── SearchFailed       (RuntimeError)     all trials of a search failed
    ├── ShutdownTimeout        (TimeoutError)     `TFCluster.shutdown(timeout=...)` ran out; the nodes were stopped
    ├── ProfileFailed          (RuntimeError)     a node could not be profiled
    ├── NoModel                (RuntimeError)     a run has no model (yet), or this kernel cannot load it
    ├── FeedError              (RuntimeError)     rows could not be fed
    │   ├── FeedTimeout        (TimeoutError)     the nodes took no rows for too long
    │   ├── NodeUnreachable    (ConnectionError)  a Spark task could not reach the node that its rows are for
    │   └── PythonWorkerKilled (RuntimeError)     a Python worker process of Spark's was killed, or has crashed
    ├── RecordError            (ValueError)       a TFRecord file or record that cannot be read or written
    ├── NoKeyboard             (EOFError)         a node's function asked for input, or for a debugger
    ├── ResultNotSendable      (TypeError)        what a node's function returned cannot be sent to the notebook
    ├── ResultNotStored        (OSError)          there is no space for a large result, here or on the node's host
    ├── ResultTooLarge         (ValueError)       what a node's function returned is larger than a result may be
    └── ResultUnreadable       (ValueError)       the bytes of a result are not what a node sends

    ClusterInterrupted         (KeyboardInterrupt)  the user interrupted the cell; its nodes are stopped
    ├── CellInterrupted                             a cell of an interactive cluster; its nodes go on
    └── ParallelInterrupted                         the same of independent runs; it has the results so far

Each error is also the builtin named beside it. Fields are given by keyword, survive pickling, and are attributes of the
error. `tfos_lab.core.crossing` carries errors across Spark, TensorFlow and the wire of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, dataclass_transform

from tfos_lab.texts import first_line, format_count

# Of thousands of nodes that are missing, and of many runs that have failed.
_MOST_NAMED = 12
# `ParallelFailed` shows so many different tracebacks; each failure keeps its own.
_MOST_TRACEBACKS = 3
# Why others fail with a node, where it is not gone.
_CAUSES = {"Hung": "hung", "FeedTimeout": "took no rows"}


_REQUIRED: Any = object()


def _required(*, kw_only: bool) -> Any:  # noqa: ARG001 - for type checkers
    """Declare a field that may be given by its place."""
    return _REQUIRED


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(_required,))
class TfosError(Exception):
    """Base of all errors of tfos_lab: an error is its annotated fields and one sentence. Fields survive pickling."""

    sentence: ClassVar[str] = "{reason}"
    # By name, with their defaults. Dataclasses would do the same, and take 20 ms in each of Spark's Python workers.
    _fields: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        own = vars(cls).get("__annotations__", {})
        cls._fields = {**cls._fields, **{name: vars(cls).get(name, _REQUIRED) for name in own}}

    def __init__(self, *in_order: Any, **fields: Any) -> None:
        super().__init__()
        fields |= dict(zip(self._fields, in_order, strict=False))
        defaults = self._fields.items()
        values = {name: one.copy() if isinstance(one, list | dict) else one for name, one in defaults} | fields
        wrong = [*(fields.keys() - self._fields), *(name for name, value in values.items() if value is _REQUIRED)]
        if wrong:
            raise TypeError(
                f"{type(self).__name__} has the fields {', '.join(self._fields)}; wrong: {', '.join(wrong)}"
            )
        self.__dict__.update(values)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), dict(self.__dict__))

    def __str__(self) -> str:
        return self.sentence.format_map(self.__dict__)


def _rebuild(kind: type[TfosError], fields: dict[str, object]) -> TfosError:
    # An error that is also a TimeoutError has the memory layout of an OSError, and needs the `__new__` of that.
    error: TfosError = kind.__base__.__new__(kind)  # type: ignore[call-overload]
    error.__dict__.update(fields)
    return error


class ConfigError(TfosError, ValueError):
    """Options that cannot work. All problems are reported together."""

    problems: list[str] = _required(kw_only=False)

    def __str__(self) -> str:
        return "; ".join(self.problems)


class NoRun(ConfigError, KeyError):
    """No run of the history has that name, or several could be meant."""


class ParamError(ConfigError, TypeError):
    """A value that a param of a Spark ML stage cannot have; a TypeError too, which is what Spark's own stages raise."""


class PayloadError(TfosError, TypeError):
    """A function, or a value that it uses, cannot be sent to the nodes."""

    name: str
    type_name: str
    reason: str
    advice: str

    sentence = "'{name}' ({type_name}) cannot be sent to the nodes: {reason}. {advice}"


class NoSession(TfosError, RuntimeError):
    """The cluster has to run on Spark, or rows have to be read by it, but there is no usable SparkSession.

    Attributes
    ----------
    reason, advice : str
        Why there is none, and what helps; "" for the usual advice.
    for_rows : bool
        Whether it was to read rows: nodes of this machine would need it, too.
    """

    reason: str
    advice: str = ""
    for_rows: bool = False

    def __str__(self) -> str:
        advice = self.advice or "make one with SparkSession.builder.getOrCreate() (or pass spark=...)"
        instead = "" if self.for_rows else ", or run on this machine with local=processes"
        return f"{self.reason}. {advice[0].upper()}{advice[1:]}{instead}."


class NotEnoughSlots(TfosError, RuntimeError):
    """Spark has fewer free task slots than the cluster needs.

    Attributes
    ----------
    wanted, free, total : int
        How many slots the nodes need, how many are free, and how many there are.
    elsewhere : int
        Nodes that need none.
    pending : str
        Which executors have not come, and why; "" where nothing is known of that.
    """

    wanted: int
    free: int
    total: int
    elsewhere: int = 0
    pending: str = ""

    def __str__(self) -> str:
        fitting = self.free + self.elsewhere
        use = f"Ask for cluster_size={fitting}" if self.free else "Stop what holds the slots (%tfos stop all)"
        others = f" for the {self.wanted} nodes that are not parameter servers" if self.elsewhere else ""
        free = f"{format_count(self.free, 'free task slot')} of {self.total}"
        return (
            f"cluster_size={self.wanted + self.elsewhere}, but Spark has {free}{others}"
            f"{self.pending and f': {self.pending}'}. "
            f"{use}, add executors or cores (spark.executor.instances, spark.executor.cores, spark.cores.max), "
            "or run on this machine with local=processes."
        )


class NotEnoughRoom(TfosError, RuntimeError):
    """This machine cannot hold as many nodes as ``option`` asks for. ``limit`` says what there is too little of."""

    wanted: int
    fits: int
    limit: str
    option: str = "cluster_size"

    def __str__(self) -> str:
        fits = format_count(self.fits, "node")
        return (
            f"{self.option}={self.wanted}, but this machine has room for {fits}: {self.limit}. "
            f"Ask for {self.option}={self.fits} or fewer, or run on the executors of a Spark cluster."
        )


class NotEnoughGpus(TfosError, RuntimeError):
    """Hosts have fewer GPUs than their nodes were to have.

    ``wanted`` is per node; ``hosts`` has, by host, the number of nodes, of GPUs, and of those that the nodes got.
    """

    wanted: int
    hosts: dict[str, list[int]]

    def __str__(self) -> str:
        texts = []
        for host, (nodes, there, got) in sorted(self.hosts.items()):
            short = got < nodes * self.wanted <= there
            taken = f", {there - got} of them taken by others" if short else ""
            texts.append(f"{host} has {format_count(there, 'GPU')} for {format_count(nodes, 'node')}{taken}")
        return (
            f"gpus={self.wanted}, but {'; '.join(texts)}. Ask for fewer GPUs, for fewer nodes on a host, or for "
            "gpus=all to let them share, or wait until others have ended."
        )


class ExecutorMismatch(TfosError, RuntimeError):
    """Executors lack a package, have one that is too old, or run another minor version of Python.

    ``problems`` says which, by host; ``unchosen`` whether they run what happens to be the first Python of their PATH.
    """

    problems: dict[str, str]
    unchosen: bool = False

    def __str__(self) -> str:
        hosts = "; ".join(f"{host}: {what}" for host, what in sorted(self.problems.items()))
        why = ": PYSPARK_PYTHON is not set, so that they run the first python3 of their PATH" if self.unchosen else ""
        return (
            f"executors cannot run a node ({hosts}){why}. Give the executors the driver's environment: install the "
            "packages there, ship them (tfos-lab pack), or point spark.pyspark.python / PYSPARK_PYTHON at a Python "
            "that has them."
        )


class ReservationTimeout(TfosError, TimeoutError):
    """Fewer nodes than asked for reserved in time, or all did, and some do not run: these are ``missing``."""

    reserved: int
    wanted: int
    waited_s: float
    missing: list[str]
    hint: str = ""

    def __str__(self) -> str:
        hint = self.hint or "Ask for fewer nodes, or raise start_timeout"
        named, more = self.missing[:_MOST_NAMED], len(self.missing) - _MOST_NAMED
        missing = ", ".join(named) + (f" and {more:,} more" if more > 0 else "")
        reserved = f"{self.reserved} of {format_count(self.wanted, 'node')} reserved within {self.waited_s:g} s"
        what = "missing" if self.reserved < self.wanted else "not running yet"
        return f"{reserved}; {what}: {missing}. {hint}."


class LaunchFailed(TfosError, RuntimeError):
    """The launcher could not start the nodes. ``reason`` is the first cause that it found."""

    reason: str


class NodeFailed(TfosError, RuntimeError):
    """A node failed: its function raised, its process ended, or the node was lost.

    Attributes
    ----------
    node : str
        The first node that failed, such as ``"worker:1"``.
    kind : str
        Name of the remote exception's type, or ``"Exited"``, ``"Lost"`` or ``"Hung"``.
    message : str
        The remote exception's text.
    traceback : str
        The remote traceback without frames of tfos_lab, the stacks of a hung node, or "".
    also : list of str
        Other nodes that failed in the same way.
    consequences : dict of str to str
        What other nodes raised because this one had ended, by node.
    log_tail : str
        The last lines of the node's log.
    """

    node: str
    kind: str
    message: str
    traceback: str = ""
    also: list[str] = []  # noqa: RUF012 - defaults are copied
    consequences: dict[str, str] = {}  # noqa: RUF012
    log_tail: str = ""

    @property
    def has_stacks(self) -> bool:
        """Whether ``traceback`` has the stacks of a hung node, which do not end with what is wrong."""
        return self.kind in ("Hung", "FeedTimeout")

    def __str__(self) -> str:
        also = f" (and {', '.join(self.also)})" if self.also else ""
        parts = [": ".join(filter(None, [f"{self.node}{also}", self.kind, self.message]))]
        if self.traceback:
            what = "stacks" if self.has_stacks else "traceback"
            parts.append(f"\n--- {what} of {self.node} ---\n{self.traceback.rstrip()}")
        elif self.log_tail:
            parts.append(f"\n--- last lines of {self.node} ---\n{self.log_tail.rstrip()}")
        if self.consequences:
            names = ", ".join(sorted(self.consequences))
            why = _CAUSES.get(self.kind, "was gone" if ":" in self.node else "failed")
            parts.append(f"\n{names} then failed too, because {self.node} {why}.")
        return "".join(parts)


class ClusterEnded(TfosError, RuntimeError):
    """The cluster that was asked for something has ended."""

    cluster: str
    state: str
    asked: str

    sentence = "cannot {asked}: cluster '{cluster}' is {state}. Start another with tfos_lab.run(...)."


class WaitTimeout(TfosError, TimeoutError):
    """``wait(timeout=...)`` ran out while nodes were still running. The cluster goes on."""

    waited_s: float
    still_running: list[str]

    def __str__(self) -> str:
        return (
            f"after {self.waited_s:g} s still running: {', '.join(self.still_running)}. "
            "The cluster goes on; wait again, or end it with stop()."
        )


class ShutdownTimeout(TfosError, TimeoutError):
    """``TFCluster.shutdown(timeout=...)`` ran out while nodes were still running. They were stopped."""

    waited_s: float
    still_running: list[str]

    def __str__(self) -> str:
        return (
            f"after {self.waited_s:g} s still running, and therefore stopped: {', '.join(self.still_running)}. "
            "Allow more time with shutdown(timeout=...), or -1 for no limit."
        )


class NoModel(TfosError, RuntimeError):
    """A run has no model (yet), or this kernel cannot load it."""

    reason: str


class ProfileFailed(TfosError, RuntimeError):
    """A node could not be profiled. It goes on."""

    node: str
    reason: str

    sentence = "{node} cannot be profiled: {reason}"


class CellFailed(NodeFailed):
    """A cell failed on nodes of an interactive cluster. They keep their names, and wait for the next cell."""


class NoKeyboard(TfosError, EOFError):
    """A function on a node asked for input. ``asked`` is what it called."""

    asked: str

    sentence = (
        "{asked} waits for somebody to type, and a node has no keyboard: run the cell with local=inline, which runs it "
        "in the notebook's kernel"
    )


class ClusterInterrupted(KeyboardInterrupt):
    """The user interrupted the cell. Its nodes are stopped."""

    def __init__(self, cluster: str) -> None:
        super().__init__(f"interrupted: the nodes of '{cluster}' are stopped")
        self.cluster = cluster


class CellInterrupted(ClusterInterrupted):
    """The user interrupted a cell of an interactive cluster. ``busy`` are nodes that have not left it yet."""

    def __init__(self, cluster: str, busy: Sequence[str] = ()) -> None:
        super().__init__(cluster)
        self.busy = list(busy)

    def __str__(self) -> str:
        if not self.busy:
            return f"interrupted: the nodes of '{self.cluster}' keep their names, and wait for the next cell"
        return (
            f"interrupted, but {', '.join(self.busy)} cannot leave the cell yet: TensorFlow notices an interrupt only "
            f"between its operations. Wait, or end all nodes with %tfos stop {self.cluster}"
        )


class ParallelInterrupted(ClusterInterrupted):
    """The user interrupted independent runs. All are stopped; ``results`` holds what had returned by then."""

    def __init__(self, cluster: str, results: Sequence[Any], returned: int, noun: str = "run") -> None:
        super().__init__(cluster)
        self.results = results
        self._returned = returned
        self._noun = noun

    def __str__(self) -> str:
        return (
            f"interrupted: the {self._noun}s of '{self.cluster}' are stopped; {self._returned} of {len(self.results)} "
            "had returned, see `results` of this error"
        )


class RunFailed(TfosError, RuntimeError):
    """One independent run failed, after all its tries.

    Attributes
    ----------
    run : int
        Its place in ``args_list``, from 0.
    argument : str
        What it got as ``args``, in short.
    kind : {"raised", "exited", "lost", "hung", "timed out"}
        Whether the function raised, its process exited, its node was lost (killed, unreachable, gone with its
        executor) or hung (with ``on_hang="fail"``), or its time was up.
    error : str
        The name of the remote exception's type; "" where none was raised.
    message : str
        The remote exception's text, or what happened.
    traceback : str
        The remote traceback without frames of tfos_lab, the stacks of a run that hung, or "".
    log_tail : str
        The last lines that the run printed.
    tries : int
        How often it was tried.
    seconds : float
        How long the last try took.
    noun : str
        What such a run is called: "run", or "trial" in a search.
    """

    run: int
    argument: str = ""
    kind: str
    error: str = ""
    message: str
    traceback: str = ""
    log_tail: str = ""
    tries: int = 1
    seconds: float = 0.0
    noun: str = "run"

    def __repr__(self) -> str:
        return f"<RunFailed {self.run}: {self.summary}>"

    def __str__(self) -> str:
        return "\n".join(part for part in (self.headline, self.details) if part)

    @property
    def details(self) -> str:
        """The traceback, or else the last lines that the run printed, under a heading."""
        if self.traceback:
            what = "stacks" if self.kind == "hung" else "traceback"
            return f"--- {what} of {self.noun} {self.run} ---\n{self.traceback.rstrip()}"
        return f"--- last lines of {self.noun} {self.run} ---\n{self.log_tail.rstrip()}" if self.log_tail else ""

    @property
    def summary(self) -> str:
        """What happened, in a line: ``ValueError: …``, or ``lost: …``."""
        return f"{self.error or self.kind}: {first_line(self.message)}"

    @property
    def headline(self) -> str:
        """Which run it was, with its argument, and what happened, in a line."""
        argument = f" ({self.argument})" if self.argument else ""
        tries = f", after {self.tries} tries" if self.tries > 1 else ""
        return f"{self.noun} {self.run}{argument}{tries}: {self.summary}"


class ParallelFailed(TfosError, RuntimeError):
    """Some independent runs failed; the others have gone on to their ends.

    Attributes
    ----------
    failed : list of dict
        The fields of each run's `RunFailed`; `failures` has the errors themselves.
    results : ParallelResults
        All that the call has to give: values of the runs that returned, and the failures in the places of the others.
    """

    failed: Collection[Any]
    results: Sequence[Any]
    _rest = "  .results (in a notebook sys.last_value.results) has the values of the others"

    def __init__(self, *, failed: Collection[RunFailed | Mapping[str, Any]], results: Sequence[Any]) -> None:
        super().__init__(failed=[_fields_of(failure) for failure in failed], results=results)

    @property
    def failures(self) -> dict[int, RunFailed]:
        """What failed, by its place in ``args_list``."""
        return {fields["run"]: RunFailed(**fields) for fields in self.failed}

    def _first_line(self, told: str) -> str:
        return f"{len(self.failed)} of {format_count(len(self.results), 'run')} failed ({told})"

    def __str__(self) -> str:
        failures = list(self.failures.values())
        kinds = [failure.kind for failure in failures]
        lines = [self._first_line(", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)))]
        lines += [f"  {failure.headline}" for failure in failures[:_MOST_NAMED]]
        if len(failures) > _MOST_NAMED:
            lines.append(f"  … and {len(failures) - _MOST_NAMED} more in .failures")
        lines.append(self._rest)
        # The first failure of each sort with its traceback, or with the last lines that it printed.
        sorts = {(failure.kind, failure.error, failure.message): failure for failure in reversed(failures)}
        chosen = sorted(sorts.values(), key=lambda failure: failure.run)[:_MOST_TRACEBACKS]
        return "\n".join([*lines, *(f"\n{failure.details}" for failure in chosen if failure.details)])


class SearchFailed(ParallelFailed):
    """All trials of a search failed. ``results`` is its `SearchResults`, without a best trial."""

    _rest = "  .results.table has a row for each"

    def _first_line(self, told: str) -> str:
        count = "the only trial" if len(self.results) == 1 else f"all {len(self.results)} trials"
        return f"{count} failed ({told}), so none is the best"


class NotAllAtOnce(NotEnoughSlots):
    """Instances were to run all at once, and there are fewer free task slots."""

    def __str__(self) -> str:
        use = f"Ask for {self.free}" if self.free else "Stop what holds the slots"
        return (
            f"{self.wanted} instances are to run at once (use_barrier=True), with "
            f"{format_count(self.free, 'free task slot')} of {self.total}. {use}, add executors or cores, or give "
            "use_barrier=False, so that instances wait for free slots."
        )


class FeedError(TfosError, RuntimeError):
    """Rows could not be fed to the nodes."""

    reason: str


class FeedTimeout(FeedError, TimeoutError):
    """Nothing moved for ``feed_timeout`` seconds: Spark ended no task, and no node received or took a row."""


class PythonWorkerKilled(FeedError):
    """A Python worker process of Spark's was killed, or has crashed, while it worked on rows or held a node's slot.

    ``host`` and ``executor`` say where, as far as Spark tells, and ``times`` how often for the same task.
    """

    reason: str = ""
    host: str = ""
    executor: str = ""
    times: int = 1

    def __str__(self) -> str:
        where = f" on {self.host} (executor {self.executor})" if self.host else ""
        often = f", {self.times} times for the same rows" if self.times > 1 else ""
        return (
            f"a Python worker process of Spark's{where} was killed or has crashed{often}: as a rule its host or "
            "container has run out of memory (dmesg there, and the executor's stderr, tell). Give executors more "
            "memory beside the JVM (spark.executor.memoryOverhead), let fewer tasks run at once "
            "(spark.executor.cores), or use more and smaller partitions"
        )


class NodeUnreachable(FeedError, ConnectionError):
    """A Spark task could not reach the node that its rows are for."""


class RecordError(TfosError, ValueError):
    """A TFRecord file that cannot be read, or a row that cannot become a record."""

    reason: str


class ResultNotSendable(TfosError, TypeError):
    """Something that a node's function returned cannot be sent to the notebook."""

    path: str
    type_name: str
    reason: str

    sentence = (
        "{path} ({type_name}) cannot be returned to the notebook: {reason}. Return plain data (numbers, text, arrays, "
        "data frames, lists and dicts of them), or write it below ctx.output_dir, which comes to the notebook as well."
    )


class ResultTooLarge(TfosError, ValueError):
    """What a node's function returned is larger than a result may be."""

    path: str
    type_name: str
    size_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        return (
            f"the result is too large to return: {self.path} ({self.type_name}) takes {self.size_bytes / 1e6:,.1f} MB, "
            f"and all of it may take {self.limit_bytes / 1e6:,.1f} MB. Save it under ctx.log_dir and return the path."
        )


class ResultNotStored(TfosError, OSError):
    """A large result could not be stored, here or on the host of its node.

    Attributes
    ----------
    place : str
        The folder, and the host.
    reason : str
        Why not.
    """

    place: str
    reason: str

    sentence = (
        "the result cannot be stored in {place}: {reason}. Free some space there, or save it where there is some, and "
        "return the path."
    )


class ResultUnreadable(TfosError, ValueError):
    """The bytes of a result are not what a node of this version sends."""

    reason: str

    sentence = "a node sent a result that cannot be read: {reason}"


def _fields_of(failure: RunFailed | Mapping[str, Any]) -> dict[str, Any]:
    """Return a failure as plain data, which it is already where the error has crossed from another process."""
    if isinstance(failure, Mapping):
        return dict(failure)
    return {name: getattr(failure, name) for name in RunFailed.__annotations__}


_kinds = [kind for kind in list(globals().values()) if isinstance(kind, type) and issubclass(kind, BaseException)]
__all__ = [kind.__name__ for kind in _kinds]
