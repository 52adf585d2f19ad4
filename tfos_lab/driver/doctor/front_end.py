"""Checks of the two parts that Jupyter loads: the JupyterLab extension, and the extension of its server."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tfos_lab.driver.doctor.finding import Finding

LAB_EXTENSION = "tfos-lab"
SERVER_EXTENSION = "tfos_lab.notebook.server"
_REINSTALL = "pip install --force-reinstall --no-deps tfos_lab (in a checkout: make setup), then restart Jupyter"


def check_lab_extension() -> Finding:
    """Check that JupyterLab finds the side panel's extension, and that nobody has disabled it."""
    from jupyter_core.paths import jupyter_config_path, jupyter_path

    if importlib.util.find_spec("jupyterlab") is None:
        return Finding("Lab extension", ok=True, found="no JupyterLab in this environment")
    folders = [Path(path) for path in jupyter_path("labextensions")]
    found = next((path for path in folders if (path / LAB_EXTENSION / "package.json").is_file()), None)
    if found is None:
        return Finding("Lab extension", ok=False, found=f"no {LAB_EXTENSION} in {folders[0]}", advice=_REINSTALL)
    pages = [Path(path) / "labconfig" / "page_config.json" for path in jupyter_config_path()]
    disabling = disabled_by([*pages, Path(sys.prefix) / "share/jupyter/lab/settings/page_config.json"])
    if disabling is not None:
        advice = f"jupyter labextension enable {LAB_EXTENSION}, then reload the page"
        return Finding("Lab extension", ok=False, found=f"disabled in {disabling}", advice=advice)
    return Finding("Lab extension", ok=True, found=str(found / LAB_EXTENSION))


def disabled_by(files: Iterable[Path]) -> Path | None:
    """Return the first file that disables the Lab extension; an earlier one that enables it has the last word."""
    for path in files:
        listed = _read(path).get("disabledExtensions")
        entries = dict.fromkeys(listed, True) if isinstance(listed, list) else listed
        if isinstance(entries, dict):
            own = [bool(value) for name, value in entries.items() if str(name).partition(":")[0] == LAB_EXTENSION]
            if own:
                return path if any(own) else None
    return None


def check_server_extension() -> Finding:
    """Check that the Jupyter server loads the part that shows clusters and TensorBoard."""
    from jupyter_core.paths import jupyter_config_path

    if importlib.util.find_spec("jupyter_server") is None:
        return Finding("server extension", ok=True, found="no Jupyter server in this environment")
    said = next(_server_settings([Path(path) for path in jupyter_config_path()]), None)
    if said is None:
        return Finding("server extension", ok=False, found="no configuration names it", advice=_REINSTALL)
    path, enabled = said
    advice = f"jupyter server extension enable {SERVER_EXTENSION}, then restart Jupyter"
    return Finding("server extension", enabled, str(path) if enabled else f"disabled in {path}", advice)


def _server_settings(folders: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """Yield the files that enable or disable the server's extension, the one that counts first."""
    for folder in folders:
        # Within a folder, Jupyter reads files by their names, and the main one last; the last one counts.
        parts = sorted(folder.glob("jupyter_server_config.d/*.json"), reverse=True)
        for path in [folder / "jupyter_server_config.json", *parts]:
            named = _read(path).get("ServerApp")
            extensions = named.get("jpserver_extensions") if isinstance(named, dict) else None
            if isinstance(extensions, dict) and SERVER_EXTENSION in extensions:
                yield path, bool(extensions[SERVER_EXTENSION])


def _read(path: Path) -> dict[str, object]:
    with contextlib.suppress(OSError, ValueError):
        value = json.loads(path.read_text("utf-8"))
        return value if isinstance(value, dict) else {}
    return {}
