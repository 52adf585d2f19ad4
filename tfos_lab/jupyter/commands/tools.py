"""Commands about this machine, this environment and the executors."""

from __future__ import annotations

from tfos_lab.engine.doctor import examine
from tfos_lab.engine.doctor.finding import render_text
from tfos_lab.engine.environment.pack import pack
from tfos_lab.engine.warm import warm
from tfos_lab.jupyter.commands.command import Command, expect


def _warm(arguments: list[str]) -> None:
    expect(arguments, "warm", at_most=0)
    print(f"warming on {warm()}: the next cell there starts at once")  # noqa: T201


def _doctor(arguments: list[str]) -> None:
    expect(arguments, "doctor", at_most=0)
    print(render_text(examine()))  # noqa: T201


def _pack(arguments: list[str]) -> None:
    expect(arguments, "pack [FILE.tar.gz]", at_most=1)
    print(pack(*arguments).describe())  # noqa: T201


COMMANDS = {"warm": Command(_warm), "doctor": Command(_doctor), "pack": Command(_pack)}
