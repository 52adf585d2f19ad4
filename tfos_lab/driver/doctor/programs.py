"""Checks of what is installed on this machine: Python, Java, packages, and the Python that Spark starts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tfos_lab.core.package_versions import FITTING, Range, clashes, installed_version, numbers_of
from tfos_lab.driver.doctor.finding import Finding, dotted
from tfos_lab.driver.environment.checks import alias_of

JAVA_NEEDED = 17
# Names of TensorFlow's packages; all of them install the same module.
_TENSORFLOW_NAMES = ("tensorflow", "tensorflow-cpu", "tensorflow-macos", "tf-nightly", "tensorflow-rocm")
_COMMAND_TIMEOUT_S = 10.0
# Spark's Python on this machine needs pyarrow to feed rows.
_WORKER_PROBE = "import sys, pyarrow; print('%d.%d' % sys.version_info[:2])"


def check_python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Finding:
    """Check the version of this Python."""
    fitting = FITTING["python"]
    found = f"{dotted(version)}{_newer(fitting, version)} ({sys.executable})"
    return Finding("Python", version[:2] >= fitting.first, found, fitting.advice)


def check_java(environ: Mapping[str, str]) -> Finding:
    """Check the Java that Spark's scripts would start: the one of JAVA_HOME, else the one on PATH."""
    home = environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environ.get("PATH"))
    advice = (
        f"Spark needs Java {JAVA_NEEDED} or newer: apt-get install openjdk-17-jre-headless, or point JAVA_HOME at one"
    )
    if java is None:
        return Finding("Java", ok=False, found="none on PATH, and JAVA_HOME is not set", advice=advice)
    output = _output_of([java, "-version"], environ)
    version = java_version(output or "")
    if version is None:
        where = f"JAVA_HOME={home}" if home else java
        return Finding("Java", ok=False, found=f"{where} is no Java that runs", advice=advice)
    return Finding("Java", version >= JAVA_NEEDED, f"{version} ({java})", advice)


def java_version(text: str) -> int | None:
    """Read the major version from the output of ``java -version``.

    Examples
    --------
    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_412"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def check_pyspark() -> Finding:
    """Check the version of pyspark, installed or a part of a Spark."""
    return _check_package("pyspark", {"pyspark": FITTING["pyspark"]})


def check_tensorflow(*, needed: bool = True) -> Finding:
    """Check the version of TensorFlow; a notebook whose nodes all run on executors needs none."""
    return _check_package("TensorFlow", dict.fromkeys(_TENSORFLOW_NAMES, FITTING["tensorflow"]), needed=needed)


def check_keras(*, needed: bool = True) -> Finding:
    """Check the version of Keras 3, or of Keras 2 where there is no other."""
    packages = {"keras": FITTING["keras"], "tf-keras": FITTING["tf_keras"]}
    return _check_package("Keras", packages, needed=needed)


def _check_package(what: str, packages: Mapping[str, Range], *, needed: bool = True) -> Finding:
    """Check the version of the first of some packages that is installed, without importing it."""
    for name, fitting in packages.items():
        version = installed_version(name)
        if version is None:
            continue
        found = version + _newer(fitting, numbers_of(version)) + (f" ({name})" if name != next(iter(packages)) else "")
        return Finding(what, numbers_of(version) >= fitting.first, found, fitting.advice)
    found = "not installed" if needed else "not installed; only cluster.model() and nodes of this machine need it"
    return Finding(what, ok=not needed, found=found, advice=next(iter(packages.values())).advice)


def _newer(fitting: Range, version: tuple[int, ...]) -> str:
    is_newer = version[:2] >= fitting.before
    return f", newer than those that were tried (before {dotted(fitting.before)})" if is_newer else ""


def check_versions() -> Finding:
    """Check that what is installed fits together."""
    problems = clashes()
    return Finding("versions", not problems, "; ".join(problems) or "fit together", "install what is named there")


def check_spark_python(environ: Mapping[str, str]) -> Finding:
    """Check the Python that Spark starts for tasks on this machine; if it is another one, rows cannot be fed."""
    mine = dotted(sys.version_info[:2])
    python = environ.get("PYSPARK_PYTHON") or "python3"
    if alias_of(python):
        return Finding("Spark's Python", ok=True, found=f"{python}, from an archive that Spark unpacks on executors")
    advice = f"export PYSPARK_PYTHON={sys.executable} before Jupyter starts (`tfos-lab lab` does)"
    output = _output_of([python, "-c", _WORKER_PROBE], environ)
    last = output.strip().splitlines()[-1] if output and output.strip() else ""
    if output is None:
        return Finding("Spark's Python", ok=False, found=f"{python} does not run", advice=advice)
    if "pyarrow" in last:
        return Finding("Spark's Python", ok=False, found=f"{python} lacks pyarrow", advice=advice)
    found = f"{last} ({python})" if last == mine else f"{python} is Python {last}, and this is {mine}"
    return Finding("Spark's Python", last == mine, found, advice)


def _output_of(command: list[str], environ: Mapping[str, str]) -> str | None:
    """Return the output of a command, or None if there is no such command or it hangs."""
    program = shutil.which(command[0], path=environ.get("PATH"))
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, *command[1:]],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace")
