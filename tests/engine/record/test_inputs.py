"""The plain values that a run is recorded with."""

from __future__ import annotations

import argparse
import dataclasses
import math

import msgspec
import numpy as np
import pytest

from tfos_lab.engine.record.inputs import HIDDEN, MAX_INPUTS, plain_inputs

RATE = 0.5
LAYERS = (64, 10)
TABLE = object()


def uses_names(args):
    return RATE, LAYERS, TABLE


def of(args):
    return plain_inputs(len, args)


@dataclasses.dataclass
class Options:
    rate: float
    inner: dict[str, int]


def test_numbers_and_short_texts_of_args_have_the_names_of_their_places():
    args = {"lr": 0.1, "model": {"units": 64, "name": "wide"}, "deep": True, "table": object(), "none": None}
    assert of(args) == {"args.lr": 0.1, "args.model.units": 64, "args.model.name": "wide", "args.deep": True}
    assert of(0.5) == {"args": 0.5}
    assert of(None) == {}


def test_namespaces_and_dataclasses_are_read_like_dicts():
    assert of(argparse.Namespace(lr=0.1, steps=3)) == {"args.lr": 0.1, "args.steps": 3}
    assert of(Options(0.1, {"a": 1})) == {"args.rate": 0.1, "args.inner.a": 1}


def test_names_that_the_function_uses_are_told_if_they_are_plain():
    assert plain_inputs(uses_names, None) == {"RATE": 0.5, "LAYERS": "(64, 10)"}


def test_values_that_json_could_not_hold_become_texts():
    found = of({"big": 1 << 80, "rate": np.float32(0.5), "steps": np.int64(7), "long": "x" * 1000, "nan": math.nan})
    assert found["args.big"] == str(1 << 80)
    assert (found["args.rate"], found["args.steps"]) == (0.5, 7)
    assert type(found["args.steps"]) is int
    assert len(found["args.long"]) == 200
    assert msgspec.json.decode(msgspec.json.encode(found))["args.nan"] is None


@pytest.mark.parametrize("name", ["password", "API_KEY", "aws_secret_access_key", "hub_token", "auth"])
def test_what_looks_like_a_password_is_not_written_down(name):
    assert of({name: "hunter2"}) == {f"args.{name}": HIDDEN}


def test_numbers_and_other_names_are_no_passwords():
    assert of({"max_tokens": 64, "author": "Ada"}) == {"args.max_tokens": 64, "args.author": "Ada"}


def test_values_that_cannot_be_looked_at_are_left_out():
    class Broken(dict):
        def items(self):
            raise RuntimeError("no")

    assert of({"broken": Broken(a=1)}) == {}
    assert of(list(range(1000))) == {}


def test_there_is_a_limit():
    assert len(of({f"x{number}": number for number in range(1000)})) == MAX_INPUTS
