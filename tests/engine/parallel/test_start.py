"""What `tfos_lab.parallel` refuses, and how it shows arguments."""

from __future__ import annotations

import argparse

import pytest

from tfos_lab.engine.parallel.start import ParallelPlan, short
from tfos_lab.errors import ConfigError


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"lr": 0.1, "units": [64, 32]}, "lr=0.1, units=[64, 32]"),
        (argparse.Namespace(lr=0.1), "lr=0.1"),
        (7, "7"),
        (("a", 2), "('a', 2)"),
        (None, ""),
        ({}, "{}"),
        ({1: 2}, "{1: 2}"),
        ("x" * 200, "'" + "x" * 27 + "..." + "x" * 28 + "'"),
        ({"text": "a\n b"}, "text='a\\n b'"),
    ],
)
def test_arguments_are_shown_in_short(args, text):
    assert short(args) == text
    assert len(short([args] * 100)) <= 60


def test_all_bad_options_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        ParallelPlan(slots=1.5, retries=True, timeout_s="1")
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "slots=1.5",
        "retries=True",
        "timeout_s='1'",
    ]
