"""A host with GPUs, as far as anybody asks: an ``nvidia-smi`` that lists them, and a folder for their locks."""

from __future__ import annotations

import os
from pathlib import Path

_NVIDIA_SMI = """\
#!/bin/sh
case "$1" in
--list-gpus) i=0; while [ $i -lt {count} ]; do echo "GPU $i: Pretended (UUID: GPU-{host}-$i)"; i=$((i+1)); done;;
esac
"""
_DISCOVERY = """\
#!/bin/sh
echo '{{"name": "gpu", "addresses": [{addresses}]}}'
"""


def fake_gpus(folder: Path, count: int) -> dict[str, str]:
    """Return the variables of a host with so many GPUs; two folders are two hosts."""
    folder.mkdir(parents=True, exist_ok=True)
    _program(folder / "nvidia-smi", _NVIDIA_SMI.format(count=count, host=folder.name))
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "TFOS_LAB_GPU_LOCKS": str(folder / "locks")}


def discovery_script(folder: Path, *addresses: str) -> Path:
    """Make the script by which Spark's workers learn of their GPUs; return its path."""
    return _program(folder / "discover.sh", _DISCOVERY.format(addresses=", ".join(f'"{one}"' for one in addresses)))


def _program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path
