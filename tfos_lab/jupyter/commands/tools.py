"""Commands about this machine, this environment and the executors."""

from __future__ import annotations

from tfos_lab.engine.doctor import examine
from tfos_lab.engine.doctor.finding import render_text
from tfos_lab.engine.environment.pack import pack
from tfos_lab.engine.launchers.this_machine import outlives_kernels
from tfos_lab.engine.warm import warm
from tfos_lab.engine.warm_servers import describe, end_warm_servers, warm_servers
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.commands.command import Command, expect

_WARM_USAGE = "warm [stop]"


def _warm(arguments: list[str]) -> None:
    expect(arguments, _WARM_USAGE, at_most=1)
    if arguments == ["stop"]:
        print(end_warm_servers())  # noqa: T201
        return
    if arguments:
        raise ConfigError([f"{arguments[0]!r}: the command is %tfos {_WARM_USAGE}"])
    print(f"warming on {warm()}: the next cell there starts at once")  # noqa: T201
    if outlives_kernels() and (servers := warm_servers()):
        print(describe(servers))  # noqa: T201


def _complete_warm(finished: list[str]) -> list[str]:
    return [] if finished else ["stop"]


def _doctor(arguments: list[str]) -> None:
    expect(arguments, "doctor", at_most=0)
    print(render_text(examine()))  # noqa: T201


def _pack(arguments: list[str]) -> None:
    expect(arguments, "pack [FILE.tar.gz]", at_most=1)
    print(pack(*arguments).describe())  # noqa: T201


COMMANDS = {"warm": Command(_warm, _complete_warm), "doctor": Command(_doctor), "pack": Command(_pack)}
