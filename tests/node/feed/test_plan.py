"""How a feed task reads a node's errors."""

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
def test_a_node_s_own_message_is_found_in_errors_of_flight_and_grpc(text, words):
    assert node_error_text(RuntimeError(text)) == words
