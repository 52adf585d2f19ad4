"""JupyterLab's extension as it is built from this tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def built_lab_extension() -> Path:
    """Return the folder with the built extension; builds it if its sources have changed since `make setup`."""
    subprocess.run([ROOT / ".ci/front-end"], check=True)
    return ROOT / "extensions/jupyterlab/labextension"
