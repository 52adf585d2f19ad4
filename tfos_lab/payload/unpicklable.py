"""Kinds of values that can never travel to a node, each with its reason and what to do instead.

They are told by the names of their classes, so that neither pyspark nor TensorFlow nor IPython is imported to ask. Some
of them would pickle without complaint and fail on the node, or not arrive as what they were: they are refused as well.
`payload` asks for every object it packs.
"""

from __future__ import annotations

import io
import sys
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary


class Refusal(NamedTuple):
    """Why a value cannot travel, and what to do; ``advice`` may hold ``{name}``, the value's name in the notebook."""

    reason: str
    advice: str


class _Rule(NamedTuple):
    package: str
    names: tuple[str, ...]
    refusal: Refusal


_INSIDE = "Make it inside the cell"

_DRIVER_ONLY = Refusal(
    "it exists only in the notebook, Spark's driver",
    "Feed rows with data=..., or compute with Spark before the cell and capture the result",
)
_ROWS_IN_SPARK = Refusal(
    "its rows live in Spark, and only the notebook can ask for them",
    "Pass it as data={name} and read it with ctx.dataset(...), or collect() it first and capture what comes back",
)
_OPEN_FILE = Refusal("an open file belongs to the process that opened it", "Capture its path, and open it in the cell")
_LOCK = Refusal("locks and threads belong to the process that made them", _INSIDE)
_CONNECTION = Refusal("an open connection belongs to the process that made it", _INSIDE)
_PROCESS = Refusal("a running process can only be handled by the process that started it", _INSIDE)
_ITERATOR = Refusal(
    "a running generator cannot be copied", f"{_INSIDE}, or capture list({{name}}) if it fits into memory"
)
_NOTEBOOK = Refusal("it belongs to the notebook's kernel, and the nodes have none", "Leave it out of the cell")

_RULES = (
    _Rule("pyspark", ("SparkSession", "SparkContext", "SQLContext", "StreamingContext"), _DRIVER_ONLY),
    _Rule("pyspark", ("DataFrame", "RDD", "Series", "Index"), _ROWS_IN_SPARK),
    _Rule("pyspark", ("Broadcast",), Refusal("a broadcast is for Spark's own tasks", "Capture {name}.value instead")),
    _Rule("pyspark", ("Column", "Accumulator", "StreamingQuery"), _DRIVER_ONLY),
    _Rule("py4j", (), Refusal("it is a handle on Spark's JVM, which only the notebook has", "Capture plain values")),
    _Rule(
        "tfos_lab",
        ("Cluster",),
        Refusal("a cluster is steered from the notebook only", "Capture what you need of it, such as {name}.results"),
    ),
    _Rule(
        "tensorflow",
        ("DatasetV2", "DatasetV1"),
        Refusal("a tf.data.Dataset is bound to this process", f"{_INSIDE}, or feed rows with data=..."),
    ),
    _Rule(
        "tensorflow",
        ("StrategyBase",),
        Refusal("a distribution strategy is bound to this process's devices", "Use ctx.strategy() in the cell"),
    ),
    _Rule("tensorflow", ("GradientTape",), Refusal("a gradient tape is bound to this process", _INSIDE)),
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
    _Rule("builtins", ("frame", "traceback"), Refusal("it belongs to code that runs in this process", _INSIDE)),
    _Rule("IPython", ("InteractiveShell", "ExitAutocall", "DisplayHandle"), _NOTEBOOK),
    _Rule("ipywidgets", ("Widget",), _NOTEBOOK),
    _Rule("anywidget", ("AnyWidget",), _NOTEBOOK),
)

# In memory only, and picklable, though they look like files.
_HARMLESS = (io.BytesIO, io.StringIO)


def refusal(value: Any) -> Refusal | None:
    """Return why ``value`` itself cannot travel, or None if nothing is known against it.

    What the value holds is not looked at.
    """
    if value is sys.stdout or value is sys.stderr:
        return None  # they arrive as the node's own
    kind = type(value)
    if kind not in _known:
        _known[kind] = _look_up(kind)
    return _known[kind]


# Asked for every object in a payload, of which many are of few types.
_known: WeakKeyDictionary[type, Refusal | None] = WeakKeyDictionary()


def _look_up(kind: type) -> Refusal | None:
    if issubclass(kind, type) or issubclass(kind, _HARMLESS):
        return None  # a class travels as its name, or as its source
    for base in kind.__mro__:
        module = getattr(base, "__module__", None)
        if not isinstance(module, str):
            continue
        for rule in _RULES:
            if _within(module, rule.package) and (not rule.names or base.__name__ in rule.names):
                return rule.refusal
    return None


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")
