"""Options that are declared once: their checks, and the signatures and texts that are derived from them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import pytest

from tfos_lab.core.options import (
    OptionGroup,
    OptionType,
    documented,
    option,
    options_of,
    problems_in,
    resolve_options,
    seconds,
    takes_options,
    whole,
)


@documented
@dataclass(frozen=True, kw_only=True)
class Oven:
    """An oven.

    Parameters
    ----------
    {options}
    """

    trays: int = option(1, OptionType.WHOLE, "how many trays", check=whole(1), group=OptionGroup.CLUSTER)
    wait_s: float = option(2.5, OptionType.SECONDS, "how long to wait", check=seconds, group=OptionGroup.FAILURE)
    mode: str | None = option(
        "low", OptionType.CHOICE, "how hot", choices=("low", "high"), optional=True, group=OptionGroup.CLUSTER
    )
    tags: dict[str, str] = option(
        {}, OptionType.ENVIRONMENT, "labels", details="Any.", none_is_default=True, group=OptionGroup.CLUSTER
    )
    number: int = 3  # no option


@takes_options(Oven)
def bake(dough: str, *, loud: bool = False, **options: object) -> dict[str, object]:
    """Bake.

    Parameters
    ----------
    dough : str
        What.
    {options}
    """
    return resolve_options(Oven, dict(options), function="bake")


def test_options_are_the_fields_that_were_declared_as_such():
    trays, wait, mode, tags = options_of(Oven)
    assert (trays.keyword, trays.name, trays.default, trays.type, trays.owner) == (
        "trays",
        "trays",
        1,
        OptionType.WHOLE,
        Oven,
    )
    assert (wait.keyword, wait.name) == ("wait_s", "wait")
    assert (mode.type_text, trays.type_text) == ("low | high", "whole number")
    assert tags.default == {}


def test_each_instance_has_a_default_of_its_own():
    assert Oven().tags is not Oven().tags


@pytest.mark.parametrize(
    ("default", "text"), [(True, "true"), (2.0, "2"), (0, "0"), (None, "none"), ({}, "none"), ("", "none"), ("a", "a")]
)
def test_defaults_are_shown_as_a_cell_would_write_them(default, text):
    @dataclass
    class One:
        value: object = option(default, OptionType.ANYTHING, "any", group=OptionGroup.CELL)

    assert options_of(One)[0].shown_default == text


def test_values_are_checked_each_by_itself():
    assert problems_in(Oven, {"trays": 0, "mode": "hot", "wait_s": True}) == [
        "trays=0: a whole number is needed",
        "wait_s=True: a number of seconds is needed",
        "mode='hot': use one of low, high, None",
    ]
    assert problems_in(Oven, {"trays": 1, "mode": None, "wait_s": 0}) == []


def test_a_function_shows_the_options_as_its_keywords():
    assert str(inspect.signature(bake)) == (
        "(dough: 'str', *, loud: 'bool' = False, trays: 'int' = 1, wait_s: 'float' = 2.5, "
        "mode: 'str | None' = 'low', tags: 'dict[str, str] | None' = None) -> 'dict[str, object]'"
    )


@pytest.mark.parametrize("target", [Oven, bake])
def test_docstrings_describe_the_options(target):
    assert "    wait_s : float, default 2.5\n        How long to wait.\n" in target.__doc__
    assert "    tags : dict[str, str], default {}\n        Labels. Any.\n" in target.__doc__


def test_none_stands_for_the_default_where_it_is_no_value():
    assert bake("rye", tags=None, mode=None, trays=2) == {"mode": None, "trays": 2}


def test_a_keyword_that_is_no_option_is_refused_as_python_does():
    with pytest.raises(TypeError, match=r"bake\(\) got an unexpected keyword argument 'tray'"):
        bake("rye", tray=2)
