"""Kinds of values that must not be pickled and sent to a node: for each the reason, and what to do instead.

They are recognized by the names of their classes, so that neither pyspark nor TensorFlow nor IPython has to be imported
to ask. Some of them would pickle without complaint but fail on the node, or arrive as something else. `packing` asks
for every object that it pickles.
"""

from __future__ import annotations

import io
import sys
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary


class UnpicklableKind(NamedTuple):
    """Why values of a kind cannot be sent, and what to do.

    ``advice`` may contain ``{name}``, for the value's name in the notebook.
    """

    reason: str
    advice: str


class _Rule(NamedTuple):
    package: str
    names: tuple[str, ...]
    kind: UnpicklableKind


_INSIDE = "Make it inside the cell"

_DRIVER_ONLY = UnpicklableKind(
    "it exists only in the notebook, Spark's driver",
    "Feed rows with data=..., or compute with Spark before the cell and capture the result",
)
_ROWS_IN_SPARK = UnpicklableKind(
    "its rows live in Spark, and only the notebook can ask for them",
    "Pass it as data={name} and read it with ctx.dataset(...), or collect() it first and capture what comes back",
)
_OPEN_FILE = UnpicklableKind(
    "an open file belongs to the process that opened it", "Capture its path, and open it in the cell"
)
_LOCK = UnpicklableKind("locks and threads belong to the process that made them", _INSIDE)
_CONNECTION = UnpicklableKind("an open connection belongs to the process that made it", _INSIDE)
_PROCESS = UnpicklableKind("a running process can only be handled by the process that started it", _INSIDE)
_ITERATOR = UnpicklableKind(
    "a running generator cannot be copied", f"{_INSIDE}, or capture list({{name}}) if it fits into memory"
)
_NOTEBOOK = UnpicklableKind("it belongs to the notebook's kernel, and the nodes have none", "Leave it out of the cell")

_RULES = (
    _Rule("pyspark", ("SparkSession", "SparkContext", "SQLContext", "StreamingContext"), _DRIVER_ONLY),
    _Rule("pyspark", ("DataFrame", "RDD", "Series", "Index"), _ROWS_IN_SPARK),
    _Rule(
        "pyspark",
        ("Broadcast",),
        UnpicklableKind("a broadcast is for Spark's own tasks", "Capture {name}.value instead"),
    ),
    _Rule("pyspark", ("Column", "Accumulator", "StreamingQuery"), _DRIVER_ONLY),
    _Rule(
        "py4j",
        (),
        UnpicklableKind("it is a handle on Spark's JVM, which only the notebook has", "Capture plain values"),
    ),
    _Rule(
        "tfos_lab",
        ("Cluster",),
        UnpicklableKind(
            "only the notebook can control a cluster", "Capture what you need of it, such as {name}.results"
        ),
    ),
    _Rule(
        "tensorflow",
        ("DatasetV2", "DatasetV1"),
        UnpicklableKind("a tf.data.Dataset is bound to this process", f"{_INSIDE}, or feed rows with data=..."),
    ),
    _Rule(
        "tensorflow",
        ("StrategyBase",),
        UnpicklableKind("a distribution strategy is bound to this process's devices", "Use ctx.strategy() in the cell"),
    ),
    _Rule("tensorflow", ("GradientTape",), UnpicklableKind("a gradient tape is bound to this process", _INSIDE)),
    _Rule("_io", ("_IOBase",), _OPEN_FILE),
    _Rule("h5py", ("File", "Group", "Dataset"), _OPEN_FILE),
    _Rule("zipfile", ("ZipFile",), _OPEN_FILE),
    _Rule("tarfile", ("TarFile",), _OPEN_FILE),
    _Rule("mmap", ("mmap",), _OPEN_FILE),
    _Rule("_thread", ("lock", "RLock", "_local"), _LOCK),
    _Rule("threading", ("Thread", "Event", "Condition", "Semaphore", "Barrier"), _LOCK),
    _Rule("queue", ("Queue",), _LOCK),
    _Rule("_queue", ("SimpleQueue",), _LOCK),
    _Rule("concurrent.futures", ("Executor", "Future"), _LOCK),
    _Rule("multiprocessing", ("BaseProcess", "SyncBase", "SemLock", "Queue", "Pool", "_ConnectionBase"), _PROCESS),
    _Rule("subprocess", ("Popen",), _PROCESS),
    _Rule("_socket", ("socket",), _CONNECTION),
    _Rule("sqlite3", ("Connection", "Cursor"), _CONNECTION),
    _Rule("zmq", ("Context", "Socket"), _CONNECTION),
    _Rule("asyncio", ("AbstractEventLoop", "Future", "Task"), _LOCK),
    _Rule("_asyncio", ("Future", "Task"), _LOCK),
    _Rule("builtins", ("generator", "coroutine", "async_generator"), _ITERATOR),
    _Rule("builtins", ("frame", "traceback"), UnpicklableKind("it belongs to code that runs in this process", _INSIDE)),
    _Rule("IPython", ("InteractiveShell", "ExitAutocall", "DisplayHandle"), _NOTEBOOK),
    _Rule("ipywidgets", ("Widget",), _NOTEBOOK),
    _Rule("anywidget", ("AnyWidget",), _NOTEBOOK),
)

# They look like files, but are in memory and can be pickled.
_HARMLESS = (io.BytesIO, io.StringIO)


def unpicklable_kind(value: Any) -> UnpicklableKind | None:
    """Return the kind of unpicklable value that ``value`` itself is, or None. What it contains is not examined."""
    if value is sys.stdout or value is sys.stderr:
        return None  # they arrive as the node's own
    value_type = type(value)
    if value_type not in _by_type:
        _by_type[value_type] = _look_up(value_type)
    return _by_type[value_type]


# A payload has many objects of few types, and each object is looked up.
_by_type: WeakKeyDictionary[type, UnpicklableKind | None] = WeakKeyDictionary()


def _look_up(value_type: type) -> UnpicklableKind | None:
    if issubclass(value_type, type) or issubclass(value_type, _HARMLESS):
        return None  # a class is sent by name, or as its source
    for base in value_type.__mro__:
        module = getattr(base, "__module__", None)
        if not isinstance(module, str):
            continue
        for rule in _RULES:
            if _within(module, rule.package) and (not rule.names or base.__name__ in rule.names):
                return rule.kind
    return None


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")
