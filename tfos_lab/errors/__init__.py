"""Every error that tfos_lab raises. Each says what happened with numbers, why, and what to do next.

    TfosError
    ├── ConfigError            (ValueError)       options that cannot work, all of them at once
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
    ├── WaitTimeout            (TimeoutError)     `wait(timeout_s=...)` ran out; the cluster goes on
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
error. `tfos_lab.errors.channel` carries errors across Spark, Flight and TensorFlow.
"""

from tfos_lab.errors.base import TfosError
from tfos_lab.errors.cluster import (
    ClusterEnded,
    LaunchFailed,
    NodeFailed,
    NoModel,
    ProfileFailed,
    ReservationTimeout,
    ShutdownTimeout,
    WaitTimeout,
)
from tfos_lab.errors.feed import FeedError, FeedTimeout, NodeUnreachable, PythonWorkerKilled, RecordError
from tfos_lab.errors.interactive import CellFailed, CellInterrupted
from tfos_lab.errors.notebook import ClusterInterrupted, NoKeyboard, ParallelInterrupted
from tfos_lab.errors.options import ConfigError, ParamError, PayloadError
from tfos_lab.errors.parallel import NotAllAtOnce, ParallelFailed, RunFailed, SearchFailed
from tfos_lab.errors.resources import ExecutorMismatch, NoSession, NotEnoughGpus, NotEnoughRoom, NotEnoughSlots
from tfos_lab.errors.results import ResultNotSendable, ResultNotStored, ResultTooLarge, ResultUnreadable

__all__ = [
    "CellFailed",
    "CellInterrupted",
    "ClusterEnded",
    "ClusterInterrupted",
    "ConfigError",
    "ExecutorMismatch",
    "FeedError",
    "FeedTimeout",
    "LaunchFailed",
    "NoKeyboard",
    "NoModel",
    "NoSession",
    "NodeFailed",
    "NodeUnreachable",
    "NotAllAtOnce",
    "NotEnoughGpus",
    "NotEnoughRoom",
    "NotEnoughSlots",
    "ParallelFailed",
    "ParallelInterrupted",
    "ParamError",
    "PayloadError",
    "ProfileFailed",
    "PythonWorkerKilled",
    "RecordError",
    "ReservationTimeout",
    "ResultNotSendable",
    "ResultNotStored",
    "ResultTooLarge",
    "ResultUnreadable",
    "RunFailed",
    "SearchFailed",
    "ShutdownTimeout",
    "TfosError",
    "WaitTimeout",
]

# Tracebacks and pickles name the public path, `tfos_lab.errors.NodeFailed`, whichever module defines the class.
for _name in __all__:
    globals()[_name].__module__ = __name__
