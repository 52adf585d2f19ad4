"""How often a node sends its log."""

from __future__ import annotations

import pytest

from tfos_lab.node.logs.sender import interval_s


def test_a_few_nodes_send_at_once_and_thousands_take_turns():
    assert interval_s(1) == interval_s(64) == 0.02
    assert interval_s(4096) == pytest.approx(1.024)
