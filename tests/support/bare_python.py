"""A Python as executors elsewhere have it: our packages without tfos_lab, and without others that a test hides."""

from __future__ import annotations

import sysconfig
import venv
from collections.abc import Collection
from pathlib import Path

_HIDE = '''\
"""Made by a test: these packages are not installed here, whatever the folders of others hold."""

import os
import sys

os.chdir({folder!r} or ".")


class Hidden:
    names = {names!r}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in cls.names:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Hidden)
'''


def make_bare_python(folder: Path, *, hidden: Collection[str] = (), elsewhere: bool = False) -> Path:
    """Make an interpreter that finds the packages of ours, but neither tfos_lab nor the hidden ones; return its path.

    Executors run it in ``new_spark(master, python=path)``. Where they are of this machine's session, our checkout is
    the folder that they are in: with ``elsewhere`` they begin in the interpreter's.
    """
    venv.create(folder, symlinks=True)
    # The editable install of tfos_lab is a .pth file too, and only those of an interpreter's own folder are read.
    site_packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (site_packages / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (site_packages / "sitecustomize.py").write_text(
        _HIDE.format(names=sorted(hidden), folder=str(folder) if elsewhere else "")
    )
    return folder / "bin" / "python"
