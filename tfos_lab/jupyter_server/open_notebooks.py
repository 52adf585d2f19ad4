"""Which notebook a kernel belongs to, and where its runs are: what the Jupyter server knows of its sessions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

_RUNS = "runs"


class Sessions(Protocol):
    """What is used of the Jupyter server's session manager."""

    async def list_sessions(self) -> list[dict[str, Any]]:
        """Return the models of all sessions."""
        ...


class Session(NamedTuple):
    """A kernel's notebook, below the server's root, and whether the kernel is busy."""

    notebook: str
    kernel_state: str


class OpenNotebooks:
    """The notebooks of this server's kernels as they are now.

    Parameters
    ----------
    sessions : mapping
        Sessions by the id of their kernel.
    root : str
        The folder of the server's contents, or "" where they are no files.
    """

    def __init__(self, sessions: dict[str, Session], root: str) -> None:
        self._sessions = sessions
        self._root = Path(root).resolve() if root else None

    @classmethod
    async def ask(cls, sessions: Sessions, root: str) -> OpenNotebooks:
        """Ask the server's session manager."""
        models = await sessions.list_sessions()
        return cls({str(model["kernel"]["id"]): _session(model) for model in models if model.get("kernel")}, root)

    def notebook_of(self, kernel_id: str, recorded: str) -> str:
        """Return a kernel's notebook below the root, by its session or else by what was recorded; "" if unknown."""
        if kernel_id in self._sessions:
            return self._sessions[kernel_id].notebook
        if self._root is None or not Path(recorded).is_absolute():
            return ""
        path = Path(recorded).resolve()
        return path.relative_to(self._root).as_posix() if path.is_relative_to(self._root) and path.is_file() else ""

    def kernel_state(self, kernel_id: str) -> str:
        """Return what a kernel does, or "" if it is not one of this server."""
        session = self._sessions.get(kernel_id)
        return session.kernel_state if session else ""

    def run_folders(self) -> Iterator[Path]:
        """Return where runs may be: beside the notebooks, and where they go where that is not possible."""
        if self._root is not None:
            yield self._root / _RUNS
            yield from ((self._root / session.notebook).parent / _RUNS for session in self._sessions.values())
        yield Path.home() / ".cache" / "tfos_lab" / _RUNS
        if folder := os.environ.get("TFOS_LAB_RUNS"):
            yield Path(folder).absolute()


def _session(model: dict[str, Any]) -> Session:
    path = str(model.get("path") or "") if model.get("type") == "notebook" else ""
    return Session(path, str(model["kernel"].get("execution_state") or ""))
