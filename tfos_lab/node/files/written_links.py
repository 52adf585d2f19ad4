"""Makes a file that a working folder shows the node's own, when the function opens it for writing.

It sees what Python opens, as Keras does for ``.keras`` files. Libraries that open files by themselves, such as HDF5,
write to the file that is shown.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from tfos_lab.core.paths import OWN_MARK

_WRITING = os.O_WRONLY | os.O_RDWR


def own_what_is_written(folder: Path) -> None:
    """From now on, replace a link in this folder before this process opens it for writing; it cannot be undone."""

    def on_event(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and arguments[2] & _WRITING and not isinstance(arguments[0], int):
            with contextlib.suppress(OSError, TypeError, ValueError):  # opening it will fail, and say why
                own(Path(os.fsdecode(arguments[0])).absolute(), folder, is_emptied=bool(arguments[2] & os.O_TRUNC))

    sys.addaudithook(on_event)


def own(path: Path, folder: Path, *, is_emptied: bool) -> None:
    """Replace a link in ``folder`` to a file elsewhere by a copy, or by an empty file if it is about to be emptied."""
    if not path.is_symlink() or not path.parent.resolve().is_relative_to(folder.resolve()):
        return
    shown = path.resolve()
    if shown.is_relative_to(folder.resolve()) or not shown.is_file():
        return
    copy = path.with_name(f"{OWN_MARK}{path.name}")
    if is_emptied:
        copy.touch()
        shutil.copymode(shown, copy)
    else:
        shutil.copy2(shown, copy)
    copy.replace(path)
