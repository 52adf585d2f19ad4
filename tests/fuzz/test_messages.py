"""Messages of all kinds, whole and damaged: they arrive as they were sent, or by the one documented error."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.mutations import damaged, little_memory
from tests.fuzz.profile import fuzzed
from tests.fuzz.structs import struct_types, values_of
from tfos_lab import messages as m

# Each union of messages, and what decodes it.
DECODERS = {m.FromAgent: m.decode_from_agent, m.ToAgent: m.decode_to_agent}
KINDS = [(kind, decode) for union, decode in DECODERS.items() for kind in struct_types(union)]


def a_map_of(**fields):
    return b"".join(
        [bytes([0x80 + len(fields)]), *(msgspec.msgpack.encode(name) + raw for name, raw in fields.items())]
    )


HEARTBEAT = msgspec.msgpack.encode("Heartbeat")
ZERO = msgspec.msgpack.encode(0)
NESTED = a_map_of(type=HEARTBEAT, rank=ZERO, more=b"\x91" * 5000 + b"\x00")
NO_TEXT = a_map_of(type=msgspec.msgpack.encode("SegmentRead"), rank=ZERO, path=b"\xa2\xff\xff")


@pytest.mark.parametrize(("kind", "decode"), KINDS, ids=lambda value: getattr(value, "__name__", None))
def test_every_kind_of_message_survives_the_journey(kind, decode):
    @fuzzed(10)
    @given(values_of(kind))
    def travel(message):
        encoded = m.encode(message)
        assert m.encode(decode(encoded)) == encoded

    travel()


@pytest.mark.parametrize("decode", DECODERS.values(), ids=["from agents", "to agents"])
@pytest.mark.parametrize("union", DECODERS, ids=["an agent's", "the driver's"])
def test_damaged_messages_are_messages_or_refused(decode, union):
    @fuzzed(120)
    @given(damaged(values_of(union).map(m.encode)))
    @example(NESTED)
    @example(NO_TEXT)
    @example(b"")
    def read(data):
        with little_memory():
            assert_decoded_or_refused(decode, data)

    read()


@pytest.mark.parametrize("decode", DECODERS.values(), ids=["from agents", "to agents"])
@fuzzed(200)
@given(data=st.binary(max_size=64))
def test_garbage_is_refused(decode, data):
    assert_decoded_or_refused(decode, data)


def assert_decoded_or_refused(decode, data):
    try:
        message = decode(data)
    except msgspec.DecodeError:
        return
    assert isinstance(message, msgspec.Struct)
