"""Checks of the two parts that Jupyter loads: the JupyterLab extension, and the extension of its server."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from tfos_lab.core.runtime_files import files_in, scratch_root
from tfos_lab.engine.doctor.finding import Finding
from tfos_lab.node.forkserver.client import ForkServerConnection
from tfos_lab.node.forkserver.health import SILENT, STOPPED, ServerRecord
from tfos_lab.node.forkserver.requests import FailedReply
from tfos_lab.transport.frames import ConnectionClosed

LAB_EXTENSION = "tfos-lab"
SERVER_EXTENSION = "tfos_lab.jupyter_server"
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


# ---- fork servers ----------------------------------------------------------------------------------------------------


_TIMEOUT_S = 0.3
# One that has imported everything answers, if late on a busy machine.
_LATE_S = 3.0
_STUCK = (STOPPED, SILENT)


def check_fork_servers() -> Finding:
    """Ask this user's fork servers on this machine for their state; if there are none, the first cell starts them."""
    try:
        sockets = sorted(files_in(scratch_root().glob("*"), "*.sock"))
    except OSError as error:
        return Finding("fork servers", ok=False, found=str(error), advice="set TMPDIR to a folder of your own")
    answers = [(path.stem.partition("-")[0], ask_fork_server(path)) for path in sockets]
    living = [(kind, answer) for kind, answer in answers if answer != "gone"]
    if stuck := [f"the {kind} one {answer}" for kind, answer in living if answer in _STUCK]:
        return Finding(
            "fork servers", ok=False, found=", ".join(stuck), advice="run a cell: it replaces one that does not work"
        )
    broken = [answer for _, answer in living if answer not in ("warm", "importing")]
    if broken:
        return Finding(
            "fork servers", ok=False, found=f"cannot import: {broken[0]}", advice="fix that, then restart the kernel"
        )
    if not living:
        return Finding("fork servers", ok=True, found="none yet: the first cell starts them")
    counts = {f"{kind} {answer}": living.count((kind, answer)) for kind, answer in living}
    return Finding("fork servers", ok=True, found=", ".join(f"{count} {which}" for which, count in counts.items()))


def ask_fork_server(path: Path) -> str:
    """Return ``"warm"``, ``"importing"``, ``"gone"``, what it suffers from, or why it failed to import."""
    record = ServerRecord.read(path)
    if record is not None and record.symptom:
        return record.symptom
    connection = ForkServerConnection.open(path)  # `connect` would start one where none runs
    if connection is None:
        return "gone"
    with connection:
        try:
            connection.ask_if_warm()
            replies = connection.replies(_LATE_S if record is not None and record.warm_s else _TIMEOUT_S)
        except (ConnectionClosed, OSError, msgspec.DecodeError):
            return "gone"
    if not replies:
        return "importing"  # it answers when it has imported everything
    return replies[0].reason if isinstance(replies[0], FailedReply) else "warm"
