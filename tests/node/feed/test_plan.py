"""What a feed task makes of a node's answers."""

from __future__ import annotations

import pytest

from tfos_lab.node.feed.plan import node_error_text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "tfos_lab: the disk is full. Detail: Failed. gRPC client debug context: UNKNOWN:tfos_lab: the",
            "the disk is full",
        ),
        ("Flight returned internal error, with message: tfos_lab: 3.5 GB do not fit\nmore", "3.5 GB do not fit"),
        ("connection reset by peer", None),
    ],
)
def test_a_node_s_own_words_are_found_in_what_flight_and_grpc_say(text, words):
    assert node_error_text(RuntimeError(text)) == words
