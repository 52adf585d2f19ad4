"""The environment of the peers: `.venv-peers` in the checkout, created when it is first needed."""

from __future__ import annotations

import subprocess
from pathlib import Path

_CHECKOUT = Path(__file__).parents[2]
_PYTHON = _CHECKOUT / ".venv-peers" / "bin" / "python"
_INSTALL = ".ci/peers"
# Half a gigabyte is downloaded.
_TIMEOUT_S = 900


class PeersMissing(RuntimeError):
    """The peers cannot be installed on this machine; the message is the installer's."""


def find_python() -> Path:
    """Return the interpreter that has the peers; install them if necessary.

    Raises
    ------
    PeersMissing
        If they cannot be installed.
    """
    try:
        done = subprocess.run(
            [_INSTALL], cwd=_CHECKOUT, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise PeersMissing(f"{_INSTALL} took more than {_TIMEOUT_S} s") from None
    if done.returncode:
        message = done.stderr.split("\n\n")[0]
        raise PeersMissing(f"{_INSTALL} failed: {' '.join(message.split()) or done.returncode}")
    return _PYTHON


def spark_home(python: Path) -> Path:
    """Return the folder of the peers' pyspark."""
    code = "import pyspark; print(pyspark.__path__[0])"
    return Path(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip())
