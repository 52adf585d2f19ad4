"""A soak of half a minute, in a process of its own; `make soak` runs longer ones."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.eventually import eventually
from tests.support.tied import tied

ROOT = Path(__file__).parents[2]
# Its fewest rounds, two of them with a fault, may take longer.
MINUTES = "0.5"
OWNER = "TFOS_LAB_TEST_SOAK"

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


def processes_of(owner):
    """Return what was started by a soak and lives, fork servers, Spark's JVM and all."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(OWNER) == owner and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"process {process.pid} ({' '.join(process.cmdline())[-200:]})")
        except psutil.Error:
            continue
    return found


def not_left(left, seed):
    assert left == [], seed
    return True


def test_clusters_with_random_faults_leave_nothing(tmp_path):
    owner, log = secrets.token_hex(8), tmp_path / "soak.log"
    command = [sys.executable, "-m", "tests.soak", "--minutes", MINUTES]
    with log.open("wb") as output:
        done = subprocess.run(
            tied(command),
            check=False,
            cwd=ROOT,
            env=os.environ | {OWNER: owner},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    # The first line and the last ones say the seed, and what was left.
    lines = log.read_text(errors="replace").splitlines()
    if done.returncode:
        pytest.fail("\n".join([f"the soak ended with code {done.returncode}", *lines[:1], *lines[-60:]]), pytrace=False)
    eventually(lambda: not_left(processes_of(owner), lines[0]))
