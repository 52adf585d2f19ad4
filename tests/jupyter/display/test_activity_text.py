"""What nodes spend their time on, in words."""

from __future__ import annotations

import dataclasses

import pytest

from tests.jupyter.views import view_of
from tfos_lab.engine.state.activity import NodeActivity
from tfos_lab.engine.state.events import NodeView
from tfos_lab.jupyter.display.activity_text import (
    cpu_text,
    format_left,
    format_step,
    gpu_text,
    host_text,
    largest_share,
    last_sign_text,
    memory_text,
    shares,
    shares_text,
    step_time_text,
    straggler_text,
)


def node_with(**figures: object) -> NodeView:
    return dataclasses.replace(view_of("running", "running").nodes[0], activity=NodeActivity(**figures))  # type: ignore[arg-type]


def test_shares_are_told_the_largest_first_without_those_of_nothing() -> None:
    node = node_with(waits_rows=0.34, computes=0.61, python=0.05)
    assert shares_text(node) == "computes 61 %, waits for rows 34 %, runs Python 5 %"
    assert shares(node) == {"rows": 0.34, "data": 0.0, "peers": 0.0, "compute": 0.61, "python": 0.05}
    assert largest_share(node) == ("compute", 0.61)


def test_nothing_is_told_before_the_first_figures() -> None:
    for node in (view_of("running", "running").nodes[0], node_with()):
        assert shares(node) == {}
        assert [text(node) for text in (shares_text, step_time_text, gpu_text, host_text, memory_text)] == [""] * 5


def test_a_straggler_is_marked_and_others_are_not() -> None:
    assert step_time_text(node_with(step_s=0.25, slower=2.13)) == "250 ms, 2.1× slower"
    assert straggler_text(node_with(step_s=0.25, slower=1.2)) == ""
    assert straggler_text(node_with(step_s=0.25)) == ""


def test_what_a_node_and_its_host_use() -> None:
    node = node_with(cpu=1.44, memory_bytes=1_240_000_000, host_cpu=0.98, host_memory=0.41, gpu=0.5, gpu_memory_bytes=8)
    assert (cpu_text(node), memory_text(node)) == ("1.4", "1.24 GB")
    assert (gpu_text(node), host_text(node)) == ("50 %, 8 B", "CPU 98 %, memory 41 %")


def test_the_last_sign_has_its_age_once_it_is_old() -> None:
    assert last_sign_text(node_with(last_sign="step 41", idle_s=0.4)) == "step 41"
    assert last_sign_text(node_with(last_sign="step 41", idle_s=64.2)) == "step 41, 64 s ago"


@pytest.mark.parametrize(("seconds", "text"), [(0.0032, "3.2 ms"), (0.25, "250 ms"), (1.25, "1.25 s"), (75, "1:15")])
def test_steps_take_from_milliseconds_to_minutes(seconds: float, text: str) -> None:
    assert format_step(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(31.2, "31 s left"), (245, "4:05 left"), (40_000, "about 11 h left")])
def test_the_time_left_is_as_exact_as_it_can_be(seconds: float, text: str) -> None:
    assert format_left(seconds) == text
