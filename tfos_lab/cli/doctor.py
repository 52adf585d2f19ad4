"""``tfos-lab doctor``: prints what is installed and what is missing."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tfos_lab.cli.terminal import echo, echo_error, paint
from tfos_lab.engine.doctor import examine, examine_machine
from tfos_lab.engine.doctor.finding import Finding, render_text
from tfos_lab.engine.doctor.network import check_master
from tfos_lab.texts import first_line


def run(arguments: Sequence[str]) -> int:
    """Print the findings; returns 1 if there is a problem."""
    parser = argparse.ArgumentParser(
        prog="tfos-lab doctor", description="Check that everything a cluster needs is there, and what to do if not."
    )
    parser.add_argument("--master", help="start a Spark session there (spark://host:7077) and check its executors too")
    master = parser.parse_args(arguments).master
    try:
        findings = _examine_at(master) if master else examine()
    except Exception as error:  # noqa: BLE001 - whatever Spark says about its start is the finding
        echo_error(f"no Spark session at {master}: {first_line(error)}")
        return 1
    echo(_coloured(render_text(findings)))
    return int(not all(finding.ok for finding in findings))


def _examine_at(master: str) -> list[Finding]:
    unreachable = check_master(master)
    if unreachable is not None:
        return [*examine_machine(), unreachable]  # Spark would try for a minute
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("tfos-lab doctor").config("spark.ui.enabled", "false")
    session = builder.config("spark.log.level", "ERROR").master(master).getOrCreate()
    try:
        return examine(session)
    finally:
        session.stop()


def _coloured(table: str) -> str:
    return table.replace("✓", paint("✓", "green")).replace("✗", paint("✗", "red"))
