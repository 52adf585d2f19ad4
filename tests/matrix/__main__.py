"""Runs `suite.py` with other versions than the locked ones, each leg in an environment of its own.

    make matrix                    all legs, one after the other: some three minutes each
    make matrix LEG=spark35        one of them
    make matrix LEG="--short oldest newest"   what CI runs: training, TFRecord, estimator and storage, on local Spark

Environments are kept in ``.venv-matrix``, and made anew when a leg or `pyproject.toml` changes.
"""
# ruff: noqa: T201 - a program that tells how far it is

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".venv-matrix"
UV = Path(sys.executable).with_name("uv")
# What the suite itself needs.
TESTS = ("pytest>=9", "pytest-timeout", "hypothesis", "psutil", "nbclient", "nbformat")
# Old versions of packages warn of newer ones.
PYTEST = ("-p", "no:cacheprovider", "-q", "--disable-warnings", "-W", "default")
SHORT = "local and (training or tfrecord or estimator or tensorflow_saves)"


@dataclass(frozen=True)
class Leg:
    """One environment: what is asked for beside `pyproject.toml`, and of which Python.

    ``options`` are those of ``uv pip install``, and ``environ`` is for the suite.
    """

    packages: tuple[str, ...] = ()
    extras: str = "tensorflow,spark,connect"
    python: str = "3.11"
    options: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)


KERAS_2 = {"TF_USE_LEGACY_KERAS": "1"}
# TensorFlow before 2.20 wants an older protobuf than Spark Connect's client.
CLASSIC = "tensorflow,spark"
LEGS = {
    "spark35": Leg(("pyspark==3.5.*",), CLASSIC),
    "spark40": Leg(("pyspark==4.0.*",)),
    "spark41": Leg(("pyspark==4.1.*",)),
    "spark42": Leg(("pyspark==4.2.*",)),
    "tf218": Leg(("tensorflow==2.18.*",), CLASSIC),
    "tf219": Leg(("tensorflow==2.19.*",), CLASSIC),
    "tf220": Leg(("tensorflow==2.20.*",)),
    "keras310": Leg(("keras==3.10.*", "tensorflow==2.20.*")),
    "keras312": Leg(("keras==3.12.*",)),
    "tf_keras": Leg(("tf-keras==2.21.*",), environ=KERAS_2),
    "python312": Leg(python="3.12"),
    "python313": Leg(python="3.13"),
    "numpy126": Leg(("numpy==1.26.*", "pyarrow<26")),
    # Without the extra `spark`, which has pandas 2 as pyspark advises.
    "pandas3": Leg(("pyspark==4.3.*", "pandas==3.*"), "tensorflow"),
    # The first versions of all that pyproject.toml names.
    "oldest": Leg(("numpy<2", "pyarrow<26"), CLASSIC, options=("--resolution", "lowest-direct")),
    "newest": Leg(python="3.13"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run some legs; return 0 if all passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__.partition("\n")[0])
    parser.add_argument("legs", nargs="*", metavar="LEG", help=f"one of {', '.join(LEGS)}; all by default")
    parser.add_argument("--short", action="store_true", help="only training, TFRecord, the estimator and storage")
    options = parser.parse_args(arguments)
    if unknown := set(options.legs) - set(LEGS):
        parser.error(f"no leg {', '.join(sorted(unknown))}; there are {', '.join(LEGS)}")
    failed = [name for name in options.legs or LEGS if not run_leg(name, LEGS[name], short=options.short)]
    if failed:
        print(f"Failed: {', '.join(failed)}")
    return int(bool(failed))


def run_leg(name: str, leg: Leg, *, short: bool) -> bool:
    """Make the environment if need be, and run the suite in it; return whether it passed."""
    began_s = time.monotonic()
    python = environment(name, leg)
    if python is None:
        return False
    made_s = time.monotonic()
    print(f"==> {name}: {what_is_in(python)}", flush=True)
    chosen = ("-k", SHORT) if short else ()
    done = subprocess.run(
        [python, "-m", "pytest", *PYTEST, "tests/matrix/suite.py", *chosen],
        cwd=ROOT,
        env={**os.environ, **leg.environ, "PYSPARK_PYTHON": str(python)},
        check=False,
    )
    seconds = time.monotonic() - made_s
    print(f"<== {name}: {'passed' if not done.returncode else 'failed'} in {seconds:.0f} s, "
          f"after {made_s - began_s:.0f} s for its environment", flush=True)  # fmt: skip
    return not done.returncode


def environment(name: str, leg: Leg) -> Path | None:
    """Return the Python of a leg's environment; None if it cannot be made."""
    folder = ENVIRONMENTS / name
    stamp = folder / "made-from"
    digest = hashlib.sha256(repr(leg).encode() + (ROOT / "pyproject.toml").read_bytes()).hexdigest()
    python = folder / "bin/python"
    if stamp.is_file() and stamp.read_text() == digest:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    install = [UV, "pip", "install", "--quiet", "--python", python]
    commands = [
        [UV, "venv", "--quiet", "--python", python_of(leg.python), folder],
        [*install, *leg.options, "--editable", f"{ROOT}[{leg.extras}]", *leg.packages],
        [*install, *TESTS],
    ]
    for command in commands:
        done = subprocess.run(command, env={**os.environ, "SKIP_JUPYTER_BUILDER": "1"}, check=False)
        if done.returncode:
            print(f"{name}: its environment could not be made ({' '.join(map(str, command))})")
            return None
    stamp.write_text(digest)
    return python


def python_of(version: str) -> str:
    """Return a Python of a version: on PATH, of pyenv, or as uv finds or downloads it."""
    candidates = [
        shutil.which(f"python{version}"),
        *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
    ]
    for candidate in filter(None, candidates):
        probe = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(probe, capture_output=True, text=True, check=False).stdout.strip() == version:
            return str(candidate)
    return version


def what_is_in(python: Path) -> str:
    """Return the versions that make a leg what it is."""
    listed = subprocess.run([UV, "pip", "freeze", "--python", python], capture_output=True, text=True, check=True)
    names = ("keras", "numpy", "pandas", "pyarrow", "pyspark", "tensorflow", "tf-keras")
    return " ".join(line for line in listed.stdout.splitlines() if line.partition("==")[0] in names)


if __name__ == "__main__":
    sys.exit(main())
