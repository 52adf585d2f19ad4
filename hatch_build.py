"""Puts the JupyterLab extension into the package; builds it first where there is JupyterLab, which brings the tools."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILT = "extensions/jupyterlab/labextension"
INSTALLED = "share/jupyter/labextensions/tfos-lab"
# Set by `make setup`, which has done it.
NO_BUILD = "TFOS_LAB_NO_BUILD"


class LabExtensionHook(BuildHookInterface):
    """Ships the extension as data, so that one ``pip install`` brings it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - the base class' words
        """Add it to wheels, editable ones too."""
        root = Path(self.root)
        if NO_BUILD not in os.environ and importlib.util.find_spec("jupyterlab"):
            # What cannot be built is left out, and the script says so itself.
            subprocess.run([root / ".ci/lab-extension"], env={**os.environ, "PYTHON": sys.executable}, check=False)
        built = root / BUILT
        if not (built / "package.json").is_file():
            self.app.display_warning(
                "JupyterLab's panel is left out: install JupyterLab, then pip install --no-build-isolation ."
            )
            return
        build_data["shared_data"][str(built)] = INSTALLED
        build_data["shared_data"][str(built.parent / "install.json")] = f"{INSTALLED}/install.json"
