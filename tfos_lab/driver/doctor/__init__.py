"""Checks that everything a cluster needs is installed and working, and says what to do if not.

`examine` returns a `Finding` for each check; ``tfos-lab doctor`` and ``%tfos doctor`` show them. The checks change
nothing and do not import TensorFlow. Executors are checked only if there is a session already. `checks` are those of
this machine, `cluster` those of a session and its executors.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tfos_lab.driver.doctor.checks import Finding, machine_checks
from tfos_lab.driver.doctor.cluster import check_session
from tfos_lab.launchers.spark import session as spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def examine(spark: SparkSession | None = None) -> list[Finding]:
    """Run all checks; returns the findings in the order in which problems are best fixed.

    Each check has a time limit, and those of this machine run side by side, so that all are done in half a minute
    whatever hangs. A new session has a minute to get its executors, and YARN and Kubernetes have one to grant them.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession, optional
        The session whose executors are checked; the active one of this process by default.
    """
    session = spark if spark is not None else spark_session.active_session()
    nodes_run_here = session is None or spark_session.is_local(session)
    return _examine(lambda: check_session(session), nodes_run_here=nodes_run_here)


def examine_machine() -> list[Finding]:
    """Run the checks of this machine."""
    return _examine(list, nodes_run_here=True)


def _examine(meanwhile: Callable[[], list[Finding]], *, nodes_run_here: bool) -> list[Finding]:
    """Run the checks of this machine on threads, and others on this one; returns the findings of both."""
    checks = machine_checks(nodes_run_here=nodes_run_here)
    with ThreadPoolExecutor(len(checks), thread_name_prefix="tfos-doctor") as pool:
        findings = pool.map(lambda check: check(), checks)
        others = meanwhile()
        return [*findings, *others]
