"""What a check of the doctor has found, and how findings are shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """The result of one check: what was checked, whether it is fine, what was found, and what to do if it is not."""

    what: str
    ok: bool
    found: str
    advice: str = ""

    @property
    def sentence(self) -> str:
        """The finding and the advice as one sentence."""
        return f"{self.what}: {self.found}" + (f"; {self.advice}" if self.advice and not self.ok else "")


def render_text(findings: Iterable[Finding]) -> str:
    """Return the findings as a table for a terminal, with a summary at the end."""
    findings = list(findings)
    width = max((len(finding.what) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{'✓' if finding.ok else '✗'} {finding.what:<{width}}  {finding.found}")
        if finding.advice and not finding.ok:
            lines.append(f"  {'':<{width}}  → {finding.advice}")
    return "\n".join([*lines, "", sum_up(findings)])


def sum_up(findings: Iterable[Finding]) -> str:
    """Return the findings in one sentence."""
    problems = [finding.what for finding in findings if not finding.ok]
    if not problems:
        return "All is well."
    return f"{len(problems)} problem{'s' if len(problems) > 1 else ''}: {', '.join(problems)}."


def dotted(version: Iterable[int]) -> str:
    """Return the numbers of a version as text."""
    return ".".join(map(str, version))
