"""Asks this user's fork servers on this machine for their state."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tfos_lab.core.runtime_files import files_in, scratch_root
from tfos_lab.engine.doctor.finding import Finding
from tfos_lab.node.forkserver.client import ForkServerConnection
from tfos_lab.node.forkserver.health import SILENT, STOPPED, ServerRecord
from tfos_lab.node.forkserver.requests import FailedReply
from tfos_lab.transport.frames import ConnectionClosed

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
