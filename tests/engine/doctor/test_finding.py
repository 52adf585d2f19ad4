"""How findings are shown."""

from __future__ import annotations

from tfos_lab.engine.doctor.finding import Finding, render_text, sum_up


def test_findings_are_shown_as_a_table_with_advice_below_the_problems():
    findings = [Finding("Python", ok=True, found="3.11"), Finding("Java", ok=False, found="none", advice="install it")]
    assert render_text(findings) == "✓ Python  3.11\n✗ Java    none\n          → install it\n\n1 problem: Java."


def test_a_summary_without_problems():
    assert sum_up([Finding("Python", ok=True, found="3.11")]) == "All is well."
