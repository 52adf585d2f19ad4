"""ANSI colour sequences as CSS classes."""

from __future__ import annotations

import pytest

from tfos_lab.jupyter.display.ansi_style import AnsiStyle


@pytest.mark.parametrize(
    ("parameters", "classes"),
    [
        ("92", "tfos-fg-bright-green"),
        ("41", "tfos-bg-red"),
        ("103", "tfos-bg-bright-yellow"),
        ("38;5;1", "tfos-fg-red"),
        ("38;5;8", "tfos-fg-bright-black"),
        ("38;5;46", "tfos-fg-bright-green"),
        ("38;5;244", "tfos-fg-bright-black"),
        ("38;2;10;10;150", "tfos-fg-blue"),
        ("48;2;10;10;10", "tfos-bg-black"),
        ("38;5", ""),
        ("38", ""),
        ("", ""),
        ("999", ""),
        ("4;7", "tfos-underline tfos-inverse"),
    ],
)
def test_every_colour_becomes_one_of_sixteen(parameters: str, classes: str) -> None:
    style = AnsiStyle()
    style.change(parameters)
    assert style.classes == classes


def test_a_style_lasts_until_it_is_reset() -> None:
    style = AnsiStyle()
    for parameters in ("1", "31", "22"):
        style.change(parameters)
    assert style.classes == "tfos-fg-red"
    style.change("0")
    assert style.classes == ""
