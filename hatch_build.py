"""Puts the built JupyterLab extension into the package, where there is one (`.ci/lab-extension` builds it)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILT = "extensions/jupyterlab/labextension"
INSTALLED = "share/jupyter/labextensions/tfos-lab"


class LabExtensionHook(BuildHookInterface):
    """Ships the extension as data, so that one ``pip install`` brings it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - the base class' words
        """Add it to wheels, editable ones too."""
        built = Path(self.root) / BUILT
        if not (built / "package.json").is_file():
            self.app.display_warning("JupyterLab's panel is left out: run .ci/lab-extension to build it")
            return
        build_data["shared_data"][str(built)] = INSTALLED
        build_data["shared_data"][str(built.parent / "install.json")] = f"{INSTALLED}/install.json"
