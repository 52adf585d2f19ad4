"""The command line in this process: what a command prints, and what the doctor finds."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass

from tfos_lab.cli import main


def tfos_lab_prints(*arguments: str) -> str:
    """Run a command that has to succeed; return what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(arguments) == 0
    return printed.getvalue()


@dataclass(frozen=True)
class Found:
    """What the doctor's report says of one thing; the advice is given where it is not fine."""

    ok: bool
    found: str
    advice: str


def doctor_finds() -> dict[str, Found]:
    """Run the doctor; return its findings by what was looked at."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        main(["doctor"])
    lines = re.findall(r"^([✓✗]) (.+?)  +(.*)\n(?:   +→ (.*)\n)?", printed.getvalue(), re.MULTILINE)
    assert len({what for _, what, _, _ in lines}) == len(lines), "each check runs once"
    return {what: Found(sign == "✓", found, advice) for sign, what, found, advice in lines}
