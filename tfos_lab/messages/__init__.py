"""The messages between driver, agents and children, as typed structs in MessagePack.

They travel between agent and driver (ZeroMQ), between agent and child (a socket pair), and to a fork server (a unix
socket). Messages are decoded against their type; nothing is ever unpickled on the driver.

Each topic is a module. At its end, ``FromAgent`` lists what agents send (children send through them), and ``ToAgent``
what they receive.
"""

from __future__ import annotations

import msgspec

from tfos_lab.messages import (
    activity,
    event_files,
    feed,
    figures,
    files,
    inference,
    interactive,
    lifecycle,
    lock_step,
    logs,
    payload,
    profile,
    results,
    stacks,
)
from tfos_lab.messages.activity import Activity
from tfos_lab.messages.common import INPUT_QUEUE, DriverAddress, LaunchSpec, Message, Outcome, TlsIdentity
from tfos_lab.messages.event_files import (
    EventFilePiece,
    EventFilesFound,
    EventFilesGrown,
    EventFilesKept,
    EventFilesPut,
    EventFilesSent,
    EventFilesWanted,
)
from tfos_lab.messages.feed import (
    AttemptStored,
    Commit,
    Commits,
    CommittedPartition,
    DataFile,
    DatasetOpened,
    EpochPlan,
    FeedAborted,
    FeedComplete,
    FeedOpen,
    FeedRead,
    FeedReady,
    FeedsEnded,
    FeedStopped,
    FilePart,
    FilesAsked,
    FilesDealt,
    FilesFound,
    PlanLater,
    RowsTaken,
    RowsWanted,
    SegmentRead,
    SegmentReady,
    Share,
)
from tfos_lab.messages.figures import Figures
from tfos_lab.messages.files import (
    FileCredit,
    FileKept,
    FilePiece,
    OutputComes,
    OutputGone,
    OutputOpened,
    OutputSent,
)
from tfos_lab.messages.inference import (
    ExchangeDropped,
    ExchangeEnded,
    ExchangeResults,
    ExchangeRows,
    ExchangeTaken,
    InferenceOpen,
    InferenceReady,
    RowsAnswered,
)
from tfos_lab.messages.interactive import CellEnded, CellWrote, InterruptCell, RunCell
from tfos_lab.messages.lifecycle import (
    ClusterSpec,
    Drained,
    Ended,
    ExecutorGone,
    Finish,
    FreeSlot,
    Heartbeat,
    HeartbeatAck,
    Progressed,
    Reported,
    Reserve,
    SavesTo,
    Shutdown,
    Start,
    StartAgain,
    Stop,
)
from tfos_lab.messages.lock_step import PeerReturned, StepsAgreed, StepsAhead
from tfos_lab.messages.logs import LogCredit, LogRecord, Logs
from tfos_lab.messages.payload import PayloadPiece, PayloadWanted
from tfos_lab.messages.profile import Profiled, ProfilePiece, ProfilePieceWanted, ProfileWanted
from tfos_lab.messages.results import ResultOffered, ResultWanted
from tfos_lab.messages.stacks import Condition, Stacks, StacksWanted

FromAgent = (
    lifecycle.FromAgent
    | activity.FromAgent
    | figures.FromAgent
    | logs.FromAgent
    | payload.FromAgent
    | feed.FromAgent
    | inference.FromAgent
    | event_files.FromAgent
    | files.FromAgent
    | lock_step.FromAgent
    | stacks.FromAgent
    | profile.FromAgent
    | results.FromAgent
    | interactive.FromAgent
)
ToAgent = (
    lifecycle.ToAgent
    | logs.ToAgent
    | payload.ToAgent
    | feed.ToAgent
    | inference.ToAgent
    | event_files.ToAgent
    | files.ToAgent
    | lock_step.ToAgent
    | stacks.ToAgent
    | profile.ToAgent
    | results.ToAgent
    | interactive.ToAgent
)

# What msgspec raises besides its own error: for text that is none, and for values within values without end.
_REFUSED = (UnicodeDecodeError, RecursionError)

_encoder = msgspec.msgpack.Encoder()
_from_agent: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
_to_agent: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)


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
