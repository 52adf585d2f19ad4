"""The doctor as a whole."""

from __future__ import annotations

from tfos_lab.engine import doctor


def test_each_check_runs_once():
    names = [finding.what for finding in doctor.examine()]
    assert names[:3] == ["Python", "Java", "pyspark"]
    assert len(names) == len(set(names))


def test_every_fault_of_this_machine_is_in_one_report_with_its_cure(monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")
    monkeypatch.setenv("TFOS_LAB_RUNS", "/proc/self/runs")
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("TFOS_SERVER_PORT", "many")
    problems = {finding.what: finding for finding in doctor.examine_machine() if not finding.ok}
    assert {"Java", "run folder", "proxies", "ports"} <= set(problems)
    assert all(finding.advice for finding in problems.values())
