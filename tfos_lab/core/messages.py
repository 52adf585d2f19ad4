"""The messages between driver, agents and children, as typed structs in MessagePack.

They travel between agent and driver (TLS), between agent and child (a socket pair), and to a fork server (a unix
socket). Messages are decoded against their type; nothing is ever unpickled on the driver. A message is declared once:
its base class says who sends it.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from tfos_lab.core.states import NodeState

# ---- what several topics share ---------------------------------------------------------------------------------------

# The queue of rows that is read where none is named.
INPUT_QUEUE = "input"
# What functions call that queue, and the split of the rows to validate with; each split is a queue of its name.
TRAIN, VALIDATION = "train", "validation"
# How often the rows of a split are read: whenever the function asks for them.
KEPT = 1 << 30

# Numbers as nodes send them: decoding refuses others, and floats that are no number. Bytes and rows stay far below the
# limit, up to which JavaScript counts. A number is -1 where it is not known, as the rank is to a task of Spark's; a
# share of the time may come out as a little less than nothing.
_MOST = 1 << 53
Count = Annotated[int, msgspec.Meta(ge=0, lt=_MOST)]
Number = Annotated[int, msgspec.Meta(ge=-1, lt=_MOST)]
Amount = Annotated[float, msgspec.Meta(ge=-1, lt=_MOST)]


class FromAgent(msgspec.Struct, tag=True, frozen=True, kw_only=True, omit_defaults=True):
    """Base of what agents send, each with the name of its type; children send through them.

    ``rank`` is the sender's. Only `Reserve` travels with it: from then on the driver knows whose connection it is.
    """

    rank: Number = -1


class ToAgent(msgspec.Struct, tag=True, frozen=True):
    """Base of what agents receive."""


class DriverAddress(msgspec.Struct, frozen=True):
    """Where the driver listens, its certificate in PEM, and the token to show it; good for one start of one cluster."""

    endpoint: str
    certificate: str
    token: bytes

    @property
    def host(self) -> str:
        """The host's name or address, as the nodes reach it."""
        return self.endpoint.removeprefix("tcp://").rpartition(":")[0]


class LaunchSpec(msgspec.Struct, frozen=True):
    """All that an agent needs to reserve its rank; everything else comes from the driver."""

    cluster_id: str
    rank: int
    node: str
    driver: DriverAddress
    # Whose fork servers to use.
    owner: str
    # The process with which the agent ends: the kernel, or the executor's JVM.
    watched_pid: int
    executor: str = ""
    # The GPUs of this node, if Spark has assigned some.
    gpus: list[str] | None = None
    # How many GPUs of its host the node takes, or of those that Spark has assigned; `EQUAL` for a share of the host's,
    # or all that are assigned; None leaves the choice to the environment.
    gpus_wanted: int | None = None
    # Among how many nodes of the host its GPUs are divided; 0 if that is not known.
    gpus_among: int = 0
    # The user's ``env``; chooses the fork server.
    extra_env: dict[str, str] = {}
    # What the child starts with.
    environ: dict[str, str] = {}
    cwd: str = "/"
    sys_path: list[str] = []
    driver_timeout_s: float = 600.0
    # A folder that all nodes must see, or "".
    shared_dir: str = ""
    # Whether the function works in ``cwd`` itself: the chief's does, in the folder of the notebook.
    stays: bool = False
    # The name by which the other nodes reach this one; "" for its address on the route to the driver.
    host: str = ""
    # The first and the last port on which the node may listen; None for any.
    ports: tuple[int, int] | None = None
    # The network on which the nodes reach one another; "" if its address on the route to the driver is right.
    network: str = ""


# The name in the nodes' certificate for rows, as hosts are known by address only.
TLS_NAME = "tfos-lab"


class TlsIdentity(msgspec.Struct, frozen=True):
    """A certificate, its key, and the certificate of the authority that has signed it, in PEM; made for one cluster."""

    certificate: bytes
    key: bytes
    authority: bytes


class Outcome(msgspec.Struct, frozen=True):
    """How a node ended.

    ``kind`` is ``"returned"`` (``value`` holds the encoded result; a large one is a file of ``stored_bytes``),
    ``"raised"`` (``error``, ``message``, ``traceback``), ``"exited"`` (``exit_code``, negative for a signal), or
    ``"stopped"``.

    It has taken ``steps`` elements of the dataset that it read last, which may have ``dataset_ended``; -1 if that is
    not known. Keras' last ``fit`` was stopped early, ``stopped_after`` an epoch; 0 if not. A function that has cached
    fed rows ``keeps_rows``, and reads them once. ``orphaned`` says that it was killed with the process that it was
    forked from.
    """

    kind: Literal["returned", "raised", "exited", "stopped"]
    value: bytes = b""
    error: str = ""
    message: str = ""
    traceback: str = ""
    consequence: bool = False
    exit_code: int = 0
    steps: int = -1
    dataset_ended: bool = False
    stopped_after: int = 0
    keeps_rows: bool = False
    orphaned: bool = False
    stored_bytes: int = 0


# ---- the life of a node: it reserves its rank, is started, runs, and ends --------------------------------------------


class Reserve(FromAgent, frozen=True):
    """The node reserves its rank: it holds ``address`` for TensorFlow, and ``gpus`` of its host's ``gpu_count``."""

    host: str
    address: str
    pid: Number
    executor: str
    gpus: list[str]
    gpu_count: Number = 0


class Heartbeat(FromAgent, frozen=True):
    """Sent where nothing else is for a second or so; silence means that the node is lost.

    Its feeds have stored ``spooled_bytes`` so far.
    """

    spooled_bytes: Number = 0


class Progressed(FromAgent, frozen=True):
    """The node's child has reached ``state``: ``"importing"``, ``"starting"``, ``"running"`` or ``"serving"``."""

    state: NodeState
    pid: Number = 0


class Reported(FromAgent, frozen=True):
    """Progress and metrics from ``ctx.report`` or the Keras callback."""

    step: int | None
    total_steps: int | None
    metrics: dict[str, float]
    time_s: Amount


class Picture(msgspec.Struct, tag=True, frozen=True):
    """A picture, as PNG."""

    png: bytes


class Table(msgspec.Struct, tag=True, frozen=True):
    """The first of ``count`` rows of a table; each has a cell for each column."""

    columns: list[str]
    rows: list[list[str | int | float | None]]
    count: int


class Matrix(msgspec.Struct, tag=True, frozen=True):
    """A confusion matrix: a row for each true class, with how often each class was predicted."""

    labels: list[str]
    counts: list[list[float]]


class Unshown(msgspec.Struct, tag=True, frozen=True):
    """Nothing, because it is too large, as a sentence says."""

    why: str


# A larger one is not shown.
SHOWN_BYTES = 1 << 20


class Shown(FromAgent, frozen=True):
    """What ``ctx.show`` was given under ``name``."""

    name: str
    step: int | None
    content: Picture | Table | Matrix | Unshown
    time_s: Amount


class SavesTo(FromAgent, frozen=True):
    """The chief's function is about to save to ``path``, on a file system of its host.

    The agent adds ``mark``, a file that it has created beside it: who sees that file shares the folder.
    """

    path: str
    mark: str = ""


class Ended(FromAgent, frozen=True):
    """The node's function has ended; its process stays until the driver sends `Finish` or `Stop`."""

    outcome: Outcome


class Drained(FromAgent, frozen=True):
    """The node's processes are gone and all its log records have been sent: no further message follows."""


class ExecutorGone(FromAgent, frozen=True):
    """The JVM of the node's executor has ended: Spark has taken it back, or lost it. The node ends with it."""


class Start(ToAgent, frozen=True):
    """Start the child: all nodes have reserved.

    ``cluster_spec`` maps each job to its ``host:port`` addresses in task order. ``rank`` counts nodes in launch order.
    Event files belong in ``log_dir``; the function writes them to ``events_dir``, another folder if that is remote.
    ``age_s`` is how many seconds ago the cluster was requested; it may have had other nodes before. With
    ``stop_on_nan``, the report of a metric that is not a number raises in the function. The function's
    output belongs in ``output_dir`` on the driver's machine ("" if it is not wanted), and its result, if that is large,
    is the file ``result_path`` there. A node that sees the file ``output_probe`` writes to them itself, and the event
    files of a chief that sees ``events_probe`` are not fetched.

    A large ``payload`` is not in the message: the agent asks for ``payload_bytes``, keeps them in ``payload_file``
    on its host, and passes the message on with that, and with the ``sys_path`` that goes in front of the child's own.
    """

    rank: int
    cluster_spec: dict[str, list[str]]
    job_name: str
    task_index: int
    is_chief: bool
    log_dir: str
    env: dict[str, str] = {}
    payload: bytes = b""
    events_dir: str = ""
    events_probe: str = ""
    backup_dir: str = ""
    default_fs: str = ""
    working_dir: str = ""
    grace_s: float = 10.0
    stop_on_nan: bool = False
    restart: int = 0
    age_s: float = 0.0
    output_dir: str = ""
    output_probe: str = ""
    result_path: str = ""
    payload_bytes: int = 0
    payload_file: str = ""
    sys_path: list[str] = []

    @property
    def event_home(self) -> str:
        """The folder below which all nodes write event files."""
        return (self.events_dir or self.log_dir).rstrip("/")

    @property
    def event_folder(self) -> str:
        """The name of this node's own folder there, and at ``log_dir``: a new one after each restart."""
        return f"{self.job_name}-{self.task_index}" + (f"-restart-{self.restart}" if self.restart else "")


class Stop(ToAgent, frozen=True):
    """End the child: SIGTERM, then SIGKILL after ``grace_s`` seconds; ``reason`` if the cluster has failed."""

    grace_s: float
    reason: str = ""


class Finish(ToAgent, frozen=True):
    """All training nodes have returned: the child may exit, and is killed after ``grace_s`` seconds."""

    grace_s: float


class StartAgain(ToAgent, frozen=True):
    """The child served others and was lost: start another with the same start message and address."""


class DriverHeartbeat(ToAgent, frozen=True):
    """Sent to all nodes every ten seconds; ten minutes of silence mean that the driver is gone."""


class Shutdown(ToAgent, frozen=True):
    """The driver has received everything from this node: the agent may exit."""


class FreeSlot(ToAgent, frozen=True):
    """Give the Spark task slot back; from now on, end with the executor's JVM or the driver."""


# ---- what a node does ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NodeActivity:
    """What one node has done in the last seconds; measured on the node, about once a second."""

    # Steps taken so far, as they were counted; `NodeView.step` is what the function has reported.
    step: int | None = None
    # Seconds of a step of training: the mean in this epoch of Keras' `fit`, else the median of the last ones; None
    # before there are any.
    step_s: Amount | None = None
    # Shares of the time, 0 to 1: waiting for fed rows, for the function's own ``tf.data``, for other nodes; in
    # TensorFlow, and in Python. All are 0 where nothing is known.
    waits_rows: Amount = 0.0
    waits_data: Amount = 0.0
    waits_peers: Amount = 0.0
    computes: Amount = 0.0
    python: Amount = 0.0
    # Rows taken from feeds, per second.
    rows_s: Amount = 0.0
    # What the function's thread does now.
    where: str = ""
    # Whether waiting for peers counts as computing, since that happens on GPUs.
    has_gpu_peers: bool = False
    # Cores in use by the node's processes.
    cpu: Amount = 0.0
    # Their resident memory.
    memory_bytes: Count = 0
    # Share of the host's CPU and memory in use, 0 to 1.
    host_cpu: Amount = 0.0
    host_memory: Amount = 0.0
    # The host's cores; 0 where not known.
    host_cores: Count = 0
    # Use of the node's GPUs, 0 to 1; None without one.
    gpu: Amount | None = None
    # Memory in use on them.
    gpu_memory_bytes: Count | None = None
    # Whether an optimizer of Keras trains a model that no strategy shares with other nodes.
    trains_alone: bool = False
    # Epochs of Keras' `fit` that have ended, and the learning rate with which the last one has.
    epochs: Count = 0
    learning_rate: Amount | None = None
    # Seconds since the last sign.
    idle_s: Amount = 0.0
    # That sign, such as ``"step 41"``.
    last_sign: str = ""
    # How many times slower than its peers it is, where it holds them up; else None.
    slower: Amount | None = None

    @property
    def is_known(self) -> bool:
        """Whether there are shares."""
        return self.waits_rows + self.waits_data + self.waits_peers + self.computes + self.python > 0


class Activity(FromAgent, frozen=True):
    """What a node does; sent about once a second.

    The child sends what it knows of its steps, the agent adds the figures of the processes and the host.
    """

    seen: NodeActivity = NodeActivity()


# ---- what its function writes ----------------------------------------------------------------------------------------


class LogRecord(msgspec.Struct, frozen=True, array_like=True):
    """Bytes that the child wrote to one stream at one time (seconds since the epoch)."""

    time_s: Amount
    stream: Literal["stdout", "stderr"]
    data: bytes


class Logs(FromAgent, frozen=True):
    """A batch of log records, in order."""

    records: list[LogRecord]


class LogCredit(ToAgent, frozen=True):
    """The driver has written a batch of the node's log."""


# ---- the function and its arguments, where they are large ------------------------------------------------------------

# Of a piece; the last one may be shorter.
PIECE_BYTES = 1 << 18


class PayloadWanted(FromAgent, frozen=True):
    """Send the piece that begins at ``offset``."""

    offset: Number


class PayloadPiece(ToAgent, frozen=True):
    """The bytes of the payload from ``offset`` on that were asked for."""

    offset: int
    data: bytes


# ---- files that the driver fetches from a node ----------------------------------------------------------------------


class ListedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of a node; ``name`` is its path below the folder, and one that is not ``settled`` may still be written."""

    name: str
    size_bytes: Count
    changed_ns: int = 0
    settled: bool = True


class FilesListed(FromAgent, frozen=True):
    """All files in a folder of the node: ``"output"``, ``"events"`` or ``"result"``.

    The driver asks for what it wants of them, then answers `FilesTaken`. Lists of a folder are counted by ``number``;
    after the ``last`` one the function writes no more. ``links`` symbolic links are left out. Output that is not taken
    is kept in ``place`` on the node's host.
    """

    folder: str
    number: Number
    files: list[ListedFile]
    last: bool = False
    links: Number = 0
    place: str = ""


class PieceWanted(ToAgent, frozen=True):
    """Send ``size_bytes`` of a file from ``offset``, unless it was changed after ``changed_ns`` (0 if it may grow).

    The folder may also be one of a profile, whose files are removed when they have been read to their ends.
    """

    folder: str
    name: str
    offset: int
    size_bytes: int
    changed_ns: int = 0


class FilePiece(FromAgent, frozen=True):
    """The piece; or it cannot be sent, because of a ``problem``."""

    folder: str
    name: str
    offset: Number
    data: bytes
    problem: str = ""


class FilesTaken(ToAgent, frozen=True):
    """The driver has what it wants of the list ``number``; ``left_out`` of its files are not here.

    It takes none at all because of a ``problem``.
    """

    folder: str
    number: int
    left_out: int = 0
    problem: str = ""


class OutputSettled(FromAgent, frozen=True):
    """The function has ended, and its output is where it stays: on the driver's machine, or in ``place`` on the host.

    Of a node whose output is not wanted, ``dropped`` files of ``dropped_bytes`` are removed with its working folder.
    """

    place: str = ""
    dropped: Number = 0
    dropped_bytes: Number = 0


class EventFilesPut(FromAgent, frozen=True):
    """The node has ended, and puts its event files at a remote ``log_dir``; or it cannot, because of a ``problem``."""

    problem: str = ""


# ---- where its threads are -------------------------------------------------------------------------------------------


class Condition(StrEnum):
    """What a node's process was found to be doing when it was asked for its stacks.

    ``LOCKED`` does not answer, as where a call into C holds the interpreter's lock. ``BUSY`` is in code of the user or
    of other packages, ``WAITS`` in what legitimately waits for other nodes; ``AWAY`` has no process to ask.
    """

    STOPPED = "stopped"
    LOCKED = "locked"
    BUSY = "busy"
    IN_TENSORFLOW = "in TensorFlow"
    WAITS_FOR_ROWS = "waits for rows"
    WAITS = "waits"
    AWAY = "away"

    @property
    def is_deaf(self) -> bool:
        """Whether the process does not even answer."""
        return self in (Condition.STOPPED, Condition.LOCKED)


class StacksWanted(ToAgent, frozen=True):
    """Say where the threads of the node's process are.

    A child that has not answered after ``patience_s`` is asked with a signal, which needs nothing of its interpreter.
    """

    request: int
    patience_s: float = 1.0


class Stacks(FromAgent, frozen=True):
    """The answer: the stacks as ``text``, and what the main thread is at.

    ``place`` is the user's line that it is in, ``call`` the function that this has called; "" where that is not known.
    """

    request: Number
    condition: Condition
    text: str
    place: str = ""
    call: str = ""


# ---- what it spends its time on --------------------------------------------------------------------------------------


class ProfileWanted(ToAgent, frozen=True):
    """Profile the node's process for so many seconds; ``no_trace`` says why without a trace, or is empty."""

    request: int
    seconds: float
    no_trace: str = ""


class Profiled(FromAgent, frozen=True):
    """The profile is finished, or there is none because of a ``problem``.

    ``samples`` are stacks, outermost frame first, each with how often it was found every ``period_s`` seconds; a frame
    is ``package<TAB>function (file:line)``. The trace is in ``files``, by name and size in bytes, which the driver
    fetches piece by piece; or there is none, as ``note`` says.
    """

    request: Number
    period_s: Amount = 0.0
    samples: list[tuple[list[str], Count]] = msgspec.field(default_factory=list)
    files: dict[str, Count] = msgspec.field(default_factory=dict)
    note: str = ""
    problem: str = ""


# ---- steps that nodes take together ----------------------------------------------------------------------------------


class StepsAhead(FromAgent, frozen=True):
    """The next steps of one pass over ``ctx.even(dataset)``, and how many rows this node has for each.

    ``runs`` are pairs of a number of steps and the rows of each. A pass that has ``ended`` has no further rows on this
    node. With ``drop``, it ends on all nodes with the first.
    """

    dataset_id: Number
    passage: Number
    runs: list[tuple[Count, Count]]
    ended: bool = False
    drop: bool = False


class StepsAgreed(ToAgent, frozen=True):
    """How many rows the next steps of a pass have on all nodes, in ``runs`` as above.

    With the last step it has ``ended``; or the node ``left`` has stopped reading, so that no more can be agreed on.
    """

    dataset_id: int
    passage: int
    runs: list[tuple[int, int]]
    ended: bool = False
    left: str = ""


class PeerReturned(ToAgent, frozen=True):
    """The function of another node of the lock-step has returned: it takes part in no further step.

    It has taken ``steps`` elements of the dataset that it read last, which may have ``ended``; -1 if that is not known.
    """

    node: str
    steps: int = -1
    ended: bool = False


# ---- cells of an interactive cluster ---------------------------------------------------------------------------------


class RunCell(ToAgent, frozen=True):
    """Run a cell. ``cell`` is its number within the cluster, ``payload`` the packed code with what it captures."""

    cell: int
    payload: bytes


class InterruptCell(ToAgent, frozen=True):
    """Raise KeyboardInterrupt in a cell, if it still runs."""

    cell: int


class CellWrote(FromAgent, frozen=True):
    """Text that a cell has written to ``stream``, since the last such message."""

    cell: Number
    stream: str
    text: str


class CellEnded(FromAgent, frozen=True):
    """A cell has ended, and all that it wrote has been sent; ``names`` are those that cells have made on this node."""

    cell: Number
    outcome: Outcome
    names: list[str]


# ---- rows ------------------------------------------------------------------------------------------------------------


class FeedOpen(ToAgent, frozen=True):
    """Open endpoints for the rows of a feed: a unix socket and, if ``tls`` is given, a TLS one.

    ``schema`` is the DataFrame's, as Spark writes it in JSON. A feed that is part of a ``stream`` is followed by the
    next one within the same epoch. The node's files of rows may take ``spool_bytes``; 0 leaves the limit to the node.

    Rows that are ``objects`` come pickled, in one column, and ``advice`` says what to do where columns are needed. Each
    ``queue`` of rows is read by itself. Rows of ``files`` need no endpoints: nodes read them themselves (`FilesDealt`).
    """

    feed: int
    epochs: int
    remainder: str
    schema: str
    token: str
    tls: TlsIdentity | None = None
    stream: bool = False
    spool_bytes: int = 0
    objects: bool = False
    advice: str = ""
    queue: str = INPUT_QUEUE
    files: bool = False


class FeedReady(FromAgent, frozen=True):
    """The node's endpoints are open; ``locations`` are where tasks connect to, the nearest first."""

    feed: Number
    locations: list[str]


class AttemptStored(FromAgent, frozen=True):
    """A feed task has stored all its rows on the nodes, ``rows`` on each of them, and asks to commit.

    The ``leftover`` rows, too few to give each node one, are stored on every node; the driver deals them out.
    """

    feed: Number
    partition: Count
    attempt: str
    rows: Count
    size_bytes: Count
    leftover: Count = 0
    shapes: dict[str, list[int]] = msgspec.field(default_factory=dict)


class Commit(ToAgent, frozen=True):
    """Make the attempt's rows visible, ``rows`` on each node; any other attempt of the partition is dropped.

    The ``leftover`` rows go to one node each, to the next ones in turn after those ``dealt`` for other partitions.
    ``shapes`` gives the inner shape of array columns, so that a node without rows knows it, too.
    """

    feed: int
    partition: int
    attempt: str
    rows: int
    leftover: int = 0
    dealt: int = 0
    shapes: dict[str, list[int]] = msgspec.field(default_factory=dict)


class FeedComplete(ToAgent, frozen=True):
    """All rows of the feed are committed."""

    feed: int


class FeedAborted(ToAgent, frozen=True):
    """The feed failed or was cancelled; what was not committed is dropped."""

    feed: int
    reason: str


class FeedsEnded(ToAgent, frozen=True):
    """There will be no further feed."""


class DatasetOpened(FromAgent, frozen=True):
    """The node's function has opened its ``dataset_id``-th dataset, of the rows of a queue.

    The steps of its epochs can now be planned.
    """

    dataset_id: Number
    batch_size: Annotated[int, msgspec.Meta(ge=1, lt=_MOST)]
    remainder: str
    shuffle: bool = False
    queue: str = INPUT_QUEUE


class Share(NamedTuple):
    """One node's part of an epoch, and how many ``nodes`` have the same."""

    rows: int
    batch_size: int
    nodes: int


class EpochPlan(ToAgent, frozen=True):
    """All lock-step nodes take ``steps`` steps in each epoch that their ``dataset_id``-th dataset reads of this feed.

    ``shares`` has each distinct share, so that a node knows the rows of a step on all nodes
    (`tfos_lab.node.feed.schedule`).
    """

    feed: int
    dataset_id: int
    steps: int
    shares: list[Share]


class PlanLater(ToAgent, frozen=True):
    """The dataset ``dataset_id`` is open on all nodes, but the feed is not complete: its steps are not known yet.

    All lock-step nodes receive either this or the `EpochPlan` first, so they agree on whether the length is known.
    Where batch sizes are not ``alike``, it is not known how full a step is before all rows have arrived.
    """

    feed: int
    dataset_id: int
    alike: bool = True


class DataFile(msgspec.Struct, frozen=True):
    """A file of rows: ``path`` is within the file system that ``root`` is on."""

    root: str
    path: str
    size_bytes: int


class FilesAsked(ToAgent, frozen=True):
    """See whether the files of a feed can be read, and count their rows if it is not known how many there are.

    ``numbers`` are those of the ``files`` among all files of the feed; ``count_as`` is their format, if it is to count.
    """

    feed: int
    files: list[DataFile]
    numbers: list[int]
    count_as: str


class FilesFound(FromAgent, frozen=True):
    """The node has found these files: ``blocks`` maps the number of a file to its blocks, if they were counted.

    A block is where it begins, in bytes, and its rows. With the last message, ``done``, the node has looked at all
    files, or ``problem`` says on which ``host`` it failed, and why.
    """

    feed: Number
    blocks: dict[Count, list[tuple[Count, Count]]]
    done: bool = False
    problem: str = ""
    host: str = ""


class FilePart(msgspec.Struct, frozen=True):
    """The rows of one file that a node reads; ``number`` is the file's among all files of the feed.

    Each of the ``pieces`` says where to begin (the number of a row group, or a byte), how many rows to skip there, and
    how many to read. ``partition`` has the values of the file's folders, such as ``year=2024``.
    """

    file: DataFile
    pieces: list[tuple[int, int, int]]
    number: int = 0
    partition: dict[str, str | None] = {}


class FilesDealt(ToAgent, frozen=True):
    """The node's share of a feed of files, all of whose rows are known by now; ``format`` is that of the files.

    The agent adds the ``folder`` of its spool, where rows are stored if their order is to be random, and may take
    ``spool_bytes``; 0 leaves the limit to the node.
    """

    feed: int
    format: str
    parts: list[FilePart]
    rows: int
    shapes: dict[str, list[int]] = msgspec.field(default_factory=dict)
    folder: str = ""
    spool_bytes: int = 0


class SegmentReady(ToAgent, frozen=True):
    """Agent to child: the Arrow IPC file at ``path`` holds ``rows`` committed rows of a partition for this node.

    Leftover rows follow, which are stored on every node; the one numbered ``own_leftover``, from 0, is this node's.
    """

    feed: int
    path: str
    rows: int
    own_leftover: int | None = None
    shapes: dict[str, list[int]] = msgspec.field(default_factory=dict)


class SegmentRead(FromAgent, frozen=True):
    """The node's function has taken all rows of a segment that is not read again."""

    path: str


class RowsWanted(FromAgent, frozen=True):
    """The node's function has asked for rows for the first time, or for another kind of rows: this node reads.

    ``objects`` says whether it wants Python objects or columns; None if it has asked for neither yet.
    """

    objects: bool | None = None


class RowsTaken(FromAgent, frozen=True):
    """How many real rows the node's function has taken so far, in all epochs.

    ``feeds`` maps each feed that is no part of a stream to its epochs read and rows taken.
    """

    rows: Number
    feeds: dict[Count, tuple[Count, Count]] = msgspec.field(default_factory=dict)


class FeedRead(FromAgent, frozen=True):
    """The node's function has taken the last row of a feed that is part of a stream."""

    feed: Number


class FeedStopped(FromAgent, frozen=True):
    """The node's function wants no more rows."""


# ---- rows that are answered ------------------------------------------------------------------------------------------


class InferenceOpen(ToAgent, frozen=True):
    """Open endpoints for rows that are to be answered with results; otherwise as `FeedOpen`."""

    schema: str
    token: str
    tls: TlsIdentity | None = None
    objects: bool = False
    queue: str = INPUT_QUEUE


class InferenceReady(FromAgent, frozen=True):
    """The node's endpoints for inferences are open; ``locations`` as in `FeedReady`."""

    locations: list[str]


class ExchangeRows(ToAgent, frozen=True):
    """The Arrow IPC file at ``path`` holds the next ``rows`` rows of an exchange; the child removes it.

    ``objects`` and ``queue`` as in `InferenceOpen`; only columns have ``shapes``.
    """

    exchange: int
    path: str
    rows: int
    shapes: dict[str, list[int]]
    objects: bool = False
    queue: str = INPUT_QUEUE


class ExchangeTaken(FromAgent, frozen=True):
    """The child has read the file of one `ExchangeRows`: another may be sent."""

    exchange: Number


class ExchangeResults(FromAgent, frozen=True):
    """The results of the next ``rows`` rows of an exchange, as an Arrow IPC stream."""

    exchange: Number
    rows: Number
    data: bytes


class ExchangeEnded(ToAgent, frozen=True):
    """This exchange has no more rows."""

    exchange: int


class ExchangeDropped(ToAgent, frozen=True):
    """The results of this exchange are no longer wanted."""

    exchange: int


class RowsAnswered(FromAgent, frozen=True):
    """The node has answered another ``rows`` rows of an inference; with the ``last``, a partition is done."""

    inference: Number
    rows: Number
    last: bool = False


# ---- encoding --------------------------------------------------------------------------------------------------------

# What msgspec raises besides its own error: for text that is none, and for values within values without end.
_REFUSED = (UnicodeDecodeError, RecursionError)


def any_of(base: type[msgspec.Struct]) -> Any:
    """Return the union of all messages of one direction."""
    return functools.reduce(operator.or_, base.__subclasses__())


_encoder = msgspec.msgpack.Encoder()
_from_agent: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(any_of(FromAgent))
_to_agent: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(any_of(ToAgent))


def encode(message: msgspec.Struct) -> bytes:
    """Encode a message (or any struct) in MessagePack."""
    return _encoder.encode(message)


def decode_from_agent(data: bytes) -> FromAgent:
    """Decode what an agent sent; raises ``msgspec.DecodeError`` for anything that is not one of its messages."""
    try:
        return _from_agent.decode(data)
    except _REFUSED as error:
        raise msgspec.DecodeError(f"it is no message: {error}") from None


def decode_to_agent(data: bytes) -> ToAgent:
    """Decode what the driver sent; raises ``msgspec.DecodeError`` for anything that is not one of its messages."""
    try:
        return _to_agent.decode(data)
    except _REFUSED as error:
        raise msgspec.DecodeError(f"it is no message: {error}") from None
