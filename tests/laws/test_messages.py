"""Messages between driver, agents and children: each kind survives the journey, and all else is refused.

Bytes of a node are data: nothing but messages of the right direction comes of them, and they cost no more memory than
they have bytes.
"""

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.laws.random_data import damaged, fuzzed, little_memory, struct_types, values_of
from tfos_lab.core import messages as m

# Each union of messages, and what decodes it.
DECODERS = {m.any_of(m.FromAgent): m.decode_from_agent, m.any_of(m.ToAgent): m.decode_to_agent}


def a_map_of(**fields):
    return b"".join(
        [bytes([0x80 + len(fields)]), *(msgspec.msgpack.encode(name) + raw for name, raw in fields.items())]
    )


HEARTBEAT = msgspec.msgpack.encode("Heartbeat")
ZERO = msgspec.msgpack.encode(0)
NESTED = a_map_of(type=HEARTBEAT, spooled_bytes=ZERO, more=b"\x91" * 5000 + b"\x00")
NO_TEXT = a_map_of(type=msgspec.msgpack.encode("SegmentRead"), path=b"\xa2\xff\xff")


@pytest.mark.parametrize("union", DECODERS, ids=["an agent's", "the driver's"])
def test_every_kind_of_message_survives_the_journey_and_only_in_its_direction(union):
    [(others, decode_others)] = [pair for pair in DECODERS.items() if pair[0] != union]

    def journey_of(kind):
        @fuzzed(10)
        @given(values_of(kind))
        def travel(message):
            encoded = m.encode(message)
            decoded = DECODERS[union](encoded)
            assert type(decoded) is kind
            assert m.encode(decoded) == encoded
            if kind not in struct_types(others):
                with pytest.raises(msgspec.DecodeError):
                    decode_others(encoded)

        return travel

    for kind in struct_types(union):
        journey_of(kind)()


@pytest.mark.parametrize(("union", "decode"), DECODERS.items(), ids=["an agent's", "the driver's"])
def test_damaged_messages_are_messages_or_refused(union, decode):
    @fuzzed(120)
    @given(damaged(values_of(union).map(m.encode)) | st.binary(max_size=64))
    @example(NESTED)
    @example(NO_TEXT)
    @example(b"")
    def read(data):
        with little_memory():
            try:
                message = decode(data)
            except msgspec.DecodeError:
                return
            assert isinstance(message, msgspec.Struct)

    read()
