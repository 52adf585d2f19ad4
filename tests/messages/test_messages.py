"""Messages between driver, agents and children: they survive the round trip, and anything else is refused."""

from __future__ import annotations

import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfos_lab import messages as m

FROM_AGENT = [
    m.Reserve(rank=1, host="h", address="h:1", pid=2, executor="3", gpus=["0"]),
    m.Heartbeat(rank=0),
    m.Activity(rank=0, step=41, step_s=0.5, waits_rows=0.62, gpu=None, last_sign="step 41"),
    m.Progressed(rank=0, state="running", pid=4),
    m.Logs(rank=0, sequence=3, records=[m.LogRecord(1.5, "stderr", bytes(range(256)))]),
    m.Reported(rank=0, step=None, total_steps=10, metrics={"loss": 0.5}, time_s=1.0),
    m.SavesTo(rank=0, path="/data/model", mark="/data/.tfos-c/chief-0", vanishes=True),
    m.FilePiece(0, "output", 3, "a/b.keras", 4, bytes(range(256)), checksum=b"\xff"),
    m.OutputOpened(rank=0, place="/tmp/there"),
    m.OutputComes(rank=0, files=2, size_bytes=300),
    m.OutputGone(rank=0, names=["a/b.keras"]),
    m.OutputSent(rank=0, left_out=1, left_out_bytes=2, place="/tmp/there", problem="why", links=3),
    m.Ended(rank=0, outcome=m.Outcome(kind="returned", value=b"\x00\xff")),
    m.Drained(rank=0),
    m.DatasetOpened(rank=0, dataset_id=1, batch_size=32, remainder=None, shuffle=True),
    m.AttemptStored(rank=0, feed=0, partition=1, attempt="1.0.2", rows=5, size_bytes=9, shapes={"x": [2]}),
    m.FeedStopped(rank=0),
    m.RowsTaken(rank=0, rows=7, epoch=1),
    m.FeedRead(rank=0, feed=2),
    m.InferenceReady(rank=0, locations=["grpc+unix:///x"]),
    m.SegmentRead(rank=0, path="/x"),
    m.ExchangeTaken(rank=0, exchange=1),
    m.ExchangeResults(rank=0, exchange=1, rows=2, data=b"\x00"),
]
TO_AGENT = [
    m.Stop(grace_s=1.5, reason="why"),
    m.Finish(grace_s=2.0),
    m.HeartbeatAck(),
    m.Shutdown(),
    m.LogCredit(sequence=9),
    m.FreeSlot(),
    m.FileCredit("output", 9),
    m.FileKept("output", 3, "its checksum is wrong", again=True),
    m.FeedOpen(feed=0, epochs=2, remainder="pad", schema="{}", token="t"),
    m.Commit(feed=0, partition=1, attempt="a", rows=3),
    m.FeedComplete(feed=0, rows=3),
    m.EpochPlan(feed=0, dataset_id=0, steps=4, shares=[(13, 4, 2)]),
    m.PlanLater(feed=0, dataset_id=1),
    m.FeedAborted(feed=0, reason="why"),
    m.FeedsEnded(),
    m.SegmentReady(feed=0, path="/x", rows=3, shapes={"x": []}),
    m.InferenceOpen(schema="{}", token="t", tls=m.TlsIdentity(b"c", b"k", b"a")),
    m.ExchangeRows(exchange=0, path="/x", rows=3, shapes={"x": [2]}),
    m.ExchangeEnded(exchange=0),
    m.ExchangeDropped(exchange=0),
]


def name(message):
    return type(message).__name__


@pytest.mark.parametrize("message", FROM_AGENT, ids=name)
def test_messages_of_an_agent_survive_the_round_trip(message):
    assert m.decode_from_agent(m.encode(message)) == message


@pytest.mark.parametrize("message", TO_AGENT, ids=name)
def test_messages_of_the_driver_survive_the_round_trip(message):
    assert m.decode_to_agent(m.encode(message)) == message


RUBBISH = [
    b"",
    b"\xc1",
    b"hello",
    msgspec.msgpack.encode({"type": "Explode"}),
    msgspec.msgpack.encode({"rank": 1}),
    msgspec.msgpack.encode([1, 2, 3]),
    msgspec.msgpack.encode({"type": "Heartbeat", "rank": "one"}),
    msgspec.msgpack.encode({"type": "Heartbeat"}),
    m.encode(m.Heartbeat(rank=0))[:-1],
    pickle.dumps(m.Heartbeat(rank=0)),
]


@pytest.mark.parametrize("data", RUBBISH, ids=range(len(RUBBISH)))
def test_rubbish_is_refused(data):
    with pytest.raises(msgspec.DecodeError):
        m.decode_from_agent(data)
    with pytest.raises(msgspec.DecodeError):
        m.decode_to_agent(data)


def test_the_two_directions_are_not_mixed_up():
    with pytest.raises(msgspec.DecodeError):
        m.decode_from_agent(m.encode(m.Shutdown()))
    with pytest.raises(msgspec.DecodeError):
        m.decode_to_agent(m.encode(m.Drained(rank=0)))


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_decode_or_be_refused(data):
    try:
        message = m.decode_from_agent(data)
    except msgspec.DecodeError:
        return
    assert isinstance(message, m.FromAgent)
