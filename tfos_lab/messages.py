"""The words that driver, agents and children say to one another, as typed structs in MessagePack.

Three conversations use them: agent and driver (ZeroMQ), agent and child (a socket pair), and whoever asks a nursery
for a process (a unix socket). What arrives is decoded against its type, and is never unpickled on the driver.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Message(msgspec.Struct, tag=True, frozen=True):
    """Base of all messages; the wire carries the type's name with the fields."""


# ---- what a run is made of ------------------------------------------------------------------------------------------


class DriverAddress(msgspec.Struct, frozen=True):
    """Where the driver listens, and the keys that open the door: made for one cluster, good for nothing else."""

    endpoint: str
    server_key: str
    client_public_key: str
    client_secret_key: str


class LaunchSpec(msgspec.Struct, frozen=True):
    """All that an agent needs to take its seat; everything else comes from the driver.

    Attributes
    ----------
    owner, guardian
        Whose nurseries to use, and the pid without which there is no reason to live (kernel, or executor's JVM).
    extra_env
        What the user asked for with ``env``; chooses the nursery.
    environ, cwd, sys_path
        What the child starts with.
    gpus
        Device indices for this node; None leaves what the environment says.
    """

    cluster_id: str
    seat: int
    node: str
    driver: DriverAddress
    owner: str
    guardian: int
    executor: str = ""
    gpus: list[str] | None = None
    extra_env: dict[str, str] = {}
    environ: dict[str, str] = {}
    cwd: str = "/"
    sys_path: list[str] = []
    driver_timeout_s: float = 60.0


class TlsIdentity(msgspec.Struct, frozen=True):
    """A self-signed certificate and its key, in PEM; made for one cluster."""

    certificate: bytes
    key: bytes


class Outcome(msgspec.Struct, frozen=True):
    """How a node ended.

    ``kind`` is ``"returned"`` (``value`` holds the encoded result), ``"raised"`` (``error``, ``message``,
    ``traceback``), ``"exited"`` (``exit_code``, negative for a signal), or ``"stopped"``.
    """

    kind: str
    value: bytes = b""
    error: str = ""
    message: str = ""
    traceback: str = ""
    consequence: bool = False
    exit_code: int = 0


# ---- agent → driver -------------------------------------------------------------------------------------------------


class Reserve(Message, frozen=True):
    """A node takes its seat: it is there, and holds ``address`` for TensorFlow."""

    seat: int
    host: str
    address: str
    pid: int
    executor: str
    gpus: list[str]


class Beat(Message, frozen=True):
    """Sent every second; silence means that the node is lost."""

    seat: int


class Progressed(Message, frozen=True):
    """The node's child reached ``state``: ``"importing"``, ``"starting"``, ``"running"`` or ``"serving"``."""

    seat: int
    state: str
    pid: int = 0


class LogRecord(msgspec.Struct, frozen=True, array_like=True):
    """Bytes that the child wrote to one stream at one time (seconds since the epoch)."""

    time_s: float
    stream: str
    data: bytes


class Logs(Message, frozen=True):
    """A batch of log records, in order; ``sequence`` counts batches of this node from 0."""

    seat: int
    sequence: int
    records: list[LogRecord]


class Reported(Message, frozen=True):
    """Progress and metrics from ``ctx.report`` or the Keras callback."""

    seat: int
    step: int | None
    total_steps: int | None
    metrics: dict[str, float]
    time_s: float


class Ended(Message, frozen=True):
    """The node's function has ended; its process stays until the driver says `Finish` or `Stop`."""

    seat: int
    outcome: Outcome


class Drained(Message, frozen=True):
    """The node's processes are gone and all its log records have been sent: nothing more comes from it."""

    seat: int


class DatasetOpened(Message, frozen=True):
    """The node's function asked for its ``opening``-th dataset: the steps of its epochs can now be agreed on."""

    seat: int
    opening: int
    batch_size: int
    remainder: str | None
    shuffle: bool = False


class FeedReady(Message, frozen=True):
    """The node's endpoints for rows are open; ``locations`` are Flight locations, the nearest first."""

    seat: int
    feed: int
    locations: list[str]


class AttemptStored(Message, frozen=True):
    """A feed task has stored all its rows on the nodes and asks to commit; ``rows`` maps seat to rows."""

    seat: int
    feed: int
    partition: int
    attempt: str
    rows: dict[int, int]
    size_bytes: int
    shapes: dict[str, list[int]] = {}


class FeedStopped(Message, frozen=True):
    """The node's function wants no more rows."""

    seat: int


class RowsTaken(Message, frozen=True):
    """How many real rows the node's function has taken so far, all epochs together."""

    seat: int
    rows: int
    epoch: int


class BoardReady(Message, frozen=True):
    """TensorBoard serves beside the node: streams to it can be opened."""

    seat: int


class BoardGone(Message, frozen=True):
    """TensorBoard could not be started on the node, or has ended."""

    seat: int
    reason: str


# ---- the tunnel to TensorBoard: both ways ---------------------------------------------------------------------------


class TunnelData(Message, frozen=True):
    """Bytes of one stream; ``offset`` counts those before them, so that a loss shows at once."""

    seat: int
    stream: int
    offset: int
    data: bytes


class TunnelCredit(Message, frozen=True):
    """So many bytes of the stream have been passed on: as many more may be sent."""

    seat: int
    stream: int
    size: int


class TunnelClosed(Message, frozen=True):
    """The stream has ended, well or badly."""

    seat: int
    stream: int


class FeedRead(Message, frozen=True):
    """The node's function has taken the last row of a feed that is part of a stream."""

    seat: int
    feed: int


class InferenceReady(Message, frozen=True):
    """The node's endpoints for rows to infer from are open; ``locations`` as in `FeedReady`."""

    seat: int
    locations: list[str]


# ---- child → agent --------------------------------------------------------------------------------------------------


class SegmentRead(Message, frozen=True):
    """The node's function has taken all rows of a segment, and the feed is read once only."""

    seat: int
    path: str


class ExchangeTaken(Message, frozen=True):
    """The child has taken one `ExchangeRows` in: there is room for more."""

    seat: int
    exchange: int


class ExchangeResults(Message, frozen=True):
    """What the node's function put as results for the next ``rows`` rows of an exchange: an Arrow IPC stream."""

    seat: int
    exchange: int
    rows: int
    data: bytes


FromAgent = (
    Reserve
    | Beat
    | Progressed
    | Logs
    | Reported
    | Ended
    | Drained
    | DatasetOpened
    | FeedReady
    | AttemptStored
    | FeedStopped
    | RowsTaken
    | BoardReady
    | BoardGone
    | TunnelData
    | TunnelCredit
    | TunnelClosed
    | FeedRead
    | InferenceReady
    | SegmentRead
    | ExchangeTaken
    | ExchangeResults
)


# ---- driver → agent -------------------------------------------------------------------------------------------------


class Release(Message, frozen=True):
    """All have reserved: start the child with this.

    ``cluster_spec`` maps each job to its ``host:port`` addresses in task order; ``seat`` counts nodes in launch order.
    """

    cluster_id: str
    seat: int
    cluster_spec: dict[str, list[str]]
    job_name: str
    task_index: int
    is_chief: bool
    payload: bytes
    env: dict[str, str]
    log_dir: str
    backup_dir: str = ""
    default_fs: str = ""
    working_dir: str = ""
    grace_s: float = 10.0
    restart: int = 0
    tensorboard: bool = False


class Stop(Message, frozen=True):
    """End the child: SIGTERM, then SIGKILL after ``grace_s`` seconds."""

    grace_s: float
    reason: str = ""


class Finish(Message, frozen=True):
    """All training nodes have returned: the child may leave, and is ended after ``grace_s`` seconds."""

    grace_s: float


class Alive(Message, frozen=True):
    """The driver's answer to a `Beat`; silence means that the driver is gone."""


class Goodbye(Message, frozen=True):
    """The driver has all it wants of this node: the agent may leave."""


class LogCredit(Message, frozen=True):
    """The driver has written log batches up to and including ``sequence``."""

    sequence: int


class FreeSlot(Message, frozen=True):
    """Give the Spark task slot back; from now on live and die with the executor's JVM and the driver."""


class FeedOpen(Message, frozen=True):
    """A feed begins: open endpoints for its rows, a TLS one beside the unix socket if ``tls`` is given.

    ``schema`` is the DataFrame's, as Spark writes it in JSON. A feed that is part of a ``stream`` is followed by the
    next one without an end between them. The node's files of rows may take ``spool_bytes``; 0 leaves it to the node.
    """

    feed: int
    epochs: int
    remainder: str
    schema: str
    token: str
    tls: TlsIdentity | None = None
    stream: bool = False
    spool_bytes: int = 0


class Commit(Message, frozen=True):
    """The attempt's rows count, and become visible; any other attempt of the partition is dropped.

    ``shapes`` gives the inner shape of array columns, so that a node without rows knows them too.
    """

    feed: int
    partition: int
    attempt: str
    rows: int
    shapes: dict[str, list[int]] = {}


class FeedComplete(Message, frozen=True):
    """All rows of the feed are committed: this node has ``rows`` of them."""

    feed: int
    rows: int


class EpochPlan(Message, frozen=True):
    """All lock-step nodes take ``steps`` steps in each epoch that their ``opening``-th dataset reads of this feed."""

    feed: int
    opening: int
    steps: int


class PlanLater(Message, frozen=True):
    """The ``opening``-th dataset has been opened everywhere, but the feed is not complete: nobody knows its steps yet.

    All lock-step nodes hear either this or the `EpochPlan` first, so that they agree on whether the length is known.
    """

    feed: int
    opening: int


class FeedAborted(Message, frozen=True):
    """The feed failed or was cancelled; what was not committed is dropped."""

    feed: int
    reason: str


class FeedsEnded(Message, frozen=True):
    """No further feed will come."""


class TunnelOpen(Message, frozen=True):
    """Open a stream to the node's TensorBoard; each side may send ``window`` bytes that are not yet passed on."""

    stream: int
    window: int


class SegmentReady(Message, frozen=True):
    """Agent to child: ``rows`` committed rows lie in the Arrow IPC stream file at ``path``."""

    feed: int
    path: str
    rows: int
    shapes: dict[str, list[int]] = {}


class InferenceOpen(Message, frozen=True):
    """Rows will come that are to be answered with results; otherwise as `FeedOpen`."""

    schema: str
    token: str
    tls: TlsIdentity | None = None


# ---- agent → child: one exchange is one Spark task's, rows in and results out, in order ----


class ExchangeRows(Message, frozen=True):
    """The next ``rows`` rows of an exchange lie in the Arrow IPC file at ``path``, which the child removes."""

    exchange: int
    path: str
    rows: int
    shapes: dict[str, list[int]]


class ExchangeEnded(Message, frozen=True):
    """No further rows come in this exchange."""

    exchange: int


class ExchangeDropped(Message, frozen=True):
    """Nobody waits for the results of this exchange any more."""

    exchange: int


ToAgent = (
    Release
    | Stop
    | Finish
    | Alive
    | Goodbye
    | LogCredit
    | FreeSlot
    | FeedOpen
    | Commit
    | FeedComplete
    | EpochPlan
    | PlanLater
    | FeedAborted
    | FeedsEnded
    | SegmentReady
    | TunnelOpen
    | TunnelData
    | TunnelCredit
    | TunnelClosed
    | InferenceOpen
    | ExchangeRows
    | ExchangeEnded
    | ExchangeDropped
)

_encoder = msgspec.msgpack.Encoder()
_from_agent: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
_to_agent: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)


def encode(message: Any) -> bytes:
    """Return a message (or any struct) as MessagePack."""
    return _encoder.encode(message)


def decode_from_agent(data: bytes) -> FromAgent:
    """Decode what an agent sent; raises ``msgspec.DecodeError`` for anything that is not one of its messages."""
    return _from_agent.decode(data)


def decode_to_agent(data: bytes) -> ToAgent:
    """Decode what the driver sent; raises ``msgspec.DecodeError`` for anything that is not one of its messages."""
    return _to_agent.decode(data)
