"""Kinds of values that must not be pickled and sent to a node: for each the reason, and what to do instead.

They are recognized by the names of their classes, so that neither pyspark nor TensorFlow nor IPython has to be imported
to ask. Some of them would pickle without complaint but fail on the node, or arrive as something else. `payload` asks
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


_INSIDE = "Make it inside the cell"
_DRIVER_ONLY = UnpicklableKind(
    "it exists only in the notebook, Spark's driver",
    "Feed rows with data=..., or compute with Spark before the cell and capture the result",
)
_ROWS_IN_SPARK = UnpicklableKind(
    "its rows live in Spark, and only the notebook can ask for them",
    "Pass it as data={name} and read it with ctx.dataset(...), or collect() it first and capture what comes back",
)
_BROADCAST = UnpicklableKind("a broadcast is for Spark's own tasks", "Capture {name}.value instead")
_JVM = UnpicklableKind("it is a handle on Spark's JVM, which only the notebook has", "Capture plain values")
_CLUSTER = UnpicklableKind(
    "only the notebook can control a cluster", "Capture what you need of it, such as {name}.results"
)
_DATASET = UnpicklableKind("a tf.data.Dataset is bound to this process", f"{_INSIDE}, or feed rows with data=...")
_STRATEGY = UnpicklableKind(
    "a distribution strategy is bound to this process's devices", "Use ctx.strategy() in the cell"
)
_TAPE = UnpicklableKind("a gradient tape is bound to this process", _INSIDE)
_OPEN_FILE = UnpicklableKind(
    "an open file belongs to the process that opened it", "Capture its path, and open it in the cell"
)
_LOCK = UnpicklableKind("locks and threads belong to the process that made them", _INSIDE)
_CONNECTION = UnpicklableKind("an open connection belongs to the process that made it", _INSIDE)
_PROCESS = UnpicklableKind("a running process can only be handled by the process that started it", _INSIDE)
_ITERATOR = UnpicklableKind(
    "a running generator cannot be copied", f"{_INSIDE}, or capture list({{name}}) if it fits into memory"
)
_FRAME = UnpicklableKind("it belongs to code that runs in this process", _INSIDE)
_NOTEBOOK = UnpicklableKind("it belongs to the notebook's kernel, and the nodes have none", "Leave it out of the cell")

# The package, the names of classes in it ("" for all), and their kind.
_RULES = (
    ("pyspark", "SparkSession SparkContext SQLContext StreamingContext", _DRIVER_ONLY),
    ("pyspark", "Column Accumulator StreamingQuery", _DRIVER_ONLY),
    ("pyspark", "DataFrame RDD Series Index", _ROWS_IN_SPARK),
    ("pyspark", "Broadcast", _BROADCAST),
    ("py4j", "", _JVM),
    ("tfos_lab", "Cluster", _CLUSTER),
    ("tensorflow", "DatasetV2 DatasetV1", _DATASET),
    ("tensorflow", "StrategyBase", _STRATEGY),
    ("tensorflow", "GradientTape", _TAPE),
    ("_io", "_IOBase", _OPEN_FILE),
    ("h5py", "File Group Dataset", _OPEN_FILE),
    ("zipfile", "ZipFile", _OPEN_FILE),
    ("tarfile", "TarFile", _OPEN_FILE),
    ("mmap", "mmap", _OPEN_FILE),
    ("_thread", "lock RLock _local", _LOCK),
    ("threading", "Thread Event Condition Semaphore Barrier", _LOCK),
    ("queue", "Queue", _LOCK),
    ("_queue", "SimpleQueue", _LOCK),
    ("concurrent.futures", "Executor Future", _LOCK),
    ("multiprocessing", "BaseProcess SyncBase SemLock Queue Pool _ConnectionBase", _PROCESS),
    ("subprocess", "Popen", _PROCESS),
    ("_socket", "socket", _CONNECTION),
    ("sqlite3", "Connection Cursor", _CONNECTION),
    ("zmq", "Context Socket", _CONNECTION),
    ("asyncio", "AbstractEventLoop Future Task", _LOCK),
    ("_asyncio", "Future Task", _LOCK),
    ("builtins", "generator coroutine async_generator", _ITERATOR),
    ("builtins", "frame traceback", _FRAME),
    ("IPython", "InteractiveShell ExitAutocall DisplayHandle", _NOTEBOOK),
    ("ipywidgets", "Widget", _NOTEBOOK),
    ("anywidget", "AnyWidget", _NOTEBOOK),
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
        for package, names, kind in _RULES:
            is_within = module == package or module.startswith(f"{package}.")
            if is_within and (not names or base.__name__ in names.split()):
                return kind
    return None
