"""JupyterLab's extension as it is built from this tree; `make setup` has built it, a bare checkout does so here."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def built_lab_extension() -> Path:
    """Return the folder with the built extension."""
    subprocess.run([ROOT / ".ci/lab-extension"], check=True)
    built = ROOT / "extensions/jupyterlab/labextension"
    assert built.is_dir(), (ROOT / "extensions/jupyterlab/build.log").read_text()[-2000:]
    return built
