"""The life of a node: it reserves its rank, is started, runs, and ends."""

from __future__ import annotations

import zlib

import msgspec

from tfos_lab.messages.common import Message, Outcome


class Reserve(Message, frozen=True):
    """The node reserves its rank: it holds ``address`` for TensorFlow, and ``gpus`` of its host's ``gpu_count``."""

    rank: int
    host: str
    address: str
    pid: int
    executor: str
    gpus: list[str]
    gpu_count: int = 0


class Heartbeat(Message, frozen=True):
    """Sent every second; silence means that the node is lost. Its feeds have stored ``spooled_bytes`` so far."""

    rank: int
    spooled_bytes: int = 0


class Progressed(Message, frozen=True):
    """The node's child has reached ``state``: ``"importing"``, ``"starting"``, ``"running"`` or ``"serving"``."""

    rank: int
    state: str
    pid: int = 0


class Reported(Message, frozen=True):
    """Progress and metrics from ``ctx.report`` or the Keras callback."""

    rank: int
    step: int | None
    total_steps: int | None
    metrics: dict[str, float]
    time_s: float


class SavesTo(Message, frozen=True):
    """The chief's function is about to save to ``path``, on a file system of its host.

    The agent adds ``mark``, a file that it has created beside it: who sees that file shares the folder. The path
    ``vanishes`` if it is in a folder that Spark removes.
    """

    rank: int
    path: str
    mark: str = ""
    vanishes: bool = False


class Ended(Message, frozen=True):
    """The node's function has ended; its process stays until the driver sends `Finish` or `Stop`."""

    rank: int
    outcome: Outcome


class Drained(Message, frozen=True):
    """The node's processes are gone and all its log records have been sent: no further message follows."""

    rank: int


class ExecutorGone(Message, frozen=True):
    """The JVM of the node's executor has ended: Spark has taken it back, or lost it. The node ends with it."""

    rank: int


class ClusterSpec(Message, frozen=True):
    """What `Start` leaves out in a large cluster, as it is the same for all: the addresses of each job's tasks.

    They are ``packed``, as the driver sends them to each node: a fifth of their size at 4,096 nodes.
    """

    packed: bytes

    @classmethod
    def of(cls, addresses: dict[str, list[str]]) -> ClusterSpec:
        """Return the message with these addresses."""
        return cls(zlib.compress(msgspec.msgpack.encode(addresses)))

    @property
    def addresses(self) -> dict[str, list[str]]:
        """Each job's ``host:port`` addresses in task order."""
        return msgspec.msgpack.decode(zlib.decompress(self.packed), type=dict[str, list[str]])


class Start(Message, frozen=True):
    """Start the child: all nodes have reserved.

    ``cluster_spec`` maps each job to its ``host:port`` addresses in task order; an agent that gets none has got a
    `ClusterSpec` before. ``rank`` counts nodes in launch order.
    Event files belong in ``log_dir``; the function writes them to ``events_dir``, another folder if that is remote.
    ``age_s`` is how many seconds ago the cluster was requested; it may have had other nodes before. The function's
    output belongs in ``output_dir`` on the driver's machine ("" if it is not wanted). A node that sees the file
    ``output_probe`` shares that folder; any other may send ``output_limit_bytes``.

    A large ``payload`` is not in the message: the agent asks for ``payload_bytes`` with the SHA-256 ``payload_digest``,
    keeps them in ``payload_file`` on its host, and passes the message on with that.
    """

    cluster_id: str
    rank: int
    cluster_spec: dict[str, list[str]]
    job_name: str
    task_index: int
    is_chief: bool
    payload: bytes
    env: dict[str, str]
    log_dir: str
    events_dir: str = ""
    backup_dir: str = ""
    default_fs: str = ""
    working_dir: str = ""
    grace_s: float = 10.0
    restart: int = 0
    age_s: float = 0.0
    output_dir: str = ""
    output_probe: str = ""
    output_limit_bytes: int = 0
    payload_bytes: int = 0
    payload_digest: str = ""
    payload_file: str = ""

    @property
    def event_home(self) -> str:
        """The folder below which all nodes write event files."""
        return (self.events_dir or self.log_dir).rstrip("/")

    @property
    def event_folder(self) -> str:
        """The name of this node's own folder there, and at ``log_dir``: a new one after each restart."""
        return f"{self.job_name}-{self.task_index}" + (f"-restart-{self.restart}" if self.restart else "")


class Stop(Message, frozen=True):
    """End the child: SIGTERM, then SIGKILL after ``grace_s`` seconds; ``reason`` if the cluster has failed."""

    grace_s: float
    reason: str = ""


class Finish(Message, frozen=True):
    """All training nodes have returned: the child may exit, and is killed after ``grace_s`` seconds."""

    grace_s: float


class StartAgain(Message, frozen=True):
    """The child served others and was lost: start another with the same start message and address."""


class HeartbeatAck(Message, frozen=True):
    """The driver's answer to a `Heartbeat`; silence means that the driver is gone."""


class Shutdown(Message, frozen=True):
    """The driver has received everything from this node: the agent may exit."""


class FreeSlot(Message, frozen=True):
    """Give the Spark task slot back; from now on, end with the executor's JVM or the driver."""


FromAgent = Reserve | Heartbeat | Progressed | Reported | SavesTo | Ended | Drained | ExecutorGone
ToAgent = ClusterSpec | Start | StartAgain | Stop | Finish | HeartbeatAck | Shutdown | FreeSlot
