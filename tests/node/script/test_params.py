"""A node's parameters: as a dict with attributes, and as a command line."""

from __future__ import annotations

import argparse

import pytest

from tfos_lab.node.script.params import NodeParams, command_line, filled, named_placeholders


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, []),
        ({"lr": 0.1, "name": "a b"}, ["--lr", "0.1", "--name", "a b"]),
        ({"verbose": True, "quiet": False, "seed": None}, ["--verbose"]),
        ({"units": [64, 32], "names": ("a", "b")}, ["--units", "64", "32", "--names", "a", "b"]),
        ({"opts": {"a": [1]}, "rows": [[1, 2]]}, ["--opts", '{"a": [1]}', "--rows", "[[1, 2]]"]),
        ({"low": -1, "text": "-x"}, ["--low", "-1", "--text=-x"]),
    ],
)
def test_parameters_are_words_of_a_command_line(params, words):
    assert command_line(params) == words


def test_argparse_reads_what_was_given():
    given = {"lr": -0.5, "units": [64, 32], "verbose": True, "text": "--odd"}
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    parser.add_argument("--units", type=int, nargs="*")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--text")
    assert vars(parser.parse_args(command_line(given))) == given


def test_parameters_are_attributes_too_and_an_unknown_one_is_told():
    params = NodeParams(lr=0.1, epochs=3)
    assert (params.lr, params["epochs"]) == (0.1, 3)
    with pytest.raises(AttributeError, match="no parameter 'rate'; it has: lr, epochs"):
        _ = params.rate


def test_placeholders_are_filled_wherever_they_stand_and_only_those_are_asked_for():
    params = {"out": "{output_dir}/{job_name}-{task_index}", "more": [{"a": "{job_name}"}], "json": '{"x": {}}', "n": 1}
    assert named_placeholders(params) == {"output_dir", "job_name", "task_index"}
    meanings = {"output_dir": lambda: "/out", "job_name": lambda: "worker", "task_index": lambda: "2"}
    assert filled(params, meanings) == {
        "out": "/out/worker-2",
        "more": [{"a": "worker"}],
        "json": '{"x": {}}',
        "n": 1,
    }
