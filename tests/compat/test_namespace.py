"""Arguments in all the forms that programs have them in."""

from __future__ import annotations

import argparse
import copy
import pickle

import pytest

from tfos_lab.compat.pipeline import Namespace
from tfos_lab.errors import ConfigError

VALUES = {"string": "foo", "integer": 1, "float": 3.14, "array": [1, 2, 3], "map": {"a": 1}}


@pytest.mark.parametrize(
    "given", [VALUES, argparse.Namespace(**VALUES), Namespace(VALUES)], ids=lambda x: type(x).__name__
)
def test_arguments_are_attributes(given):
    args = Namespace(given)
    assert (args.string, args.integer, args.float, args.array, args.map) == tuple(VALUES.values())
    assert "string" in args
    assert "extra" not in args
    assert list(args) == list(VALUES)
    assert args == Namespace(VALUES)
    assert args == argparse.Namespace(**VALUES)
    assert args != Namespace({**VALUES, "extra": 1})
    assert vars(args) == VALUES
    assert args.argv is None


def test_a_copy_leaves_the_original_alone():
    given = Namespace(VALUES)
    args = Namespace(given)
    args.extra = 1
    assert "extra" not in given
    assert copy.copy(given) == pickle.loads(pickle.dumps(given)) == given


def test_a_command_line_stays_a_list():
    args = Namespace(["program", "--epochs", "3"])
    assert args.argv == ["program", "--epochs", "3"]
    assert args == ["program", "--epochs", "3"]
    assert args == Namespace(["program", "--epochs", "3"])
    assert args != Namespace(["program"])
    assert "--epochs" in args
    assert list(args) == args.argv
    assert repr(args) == "['program', '--epochs', '3']"


def test_a_namespace_shows_its_values_by_name():
    assert repr(Namespace({"b": "two", "a": 1})) == "Namespace(a=1, b='two')"


@pytest.mark.parametrize("given", [None, 3, "text", ("program",)])
def test_other_arguments_are_refused(given):
    with pytest.raises(ConfigError, match=r"args=.*: use a dict, an argparse.Namespace, a Namespace, or a list"):
        Namespace(given)


def test_it_is_unequal_to_what_has_no_attributes():
    assert Namespace({}) != 3
