"""How tfos_lab itself comes to the executors: as a small archive inside the job, unpacked once per host.

The executors run the very code that the notebook runs, whatever is or is not installed there.
"""

from __future__ import annotations

import functools
import hashlib
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What executors need; the pickling library that functions were packed with comes on top.
_PACKAGES = ("core", "data", "errors", "messages", "node", "payload", "scoring", "transport", "values")
_SKIP = ("__pycache__",)


@functools.cache
def code_archive() -> tuple[bytes, str]:
    """Return the archive and its digest."""
    import cloudpickle

    import tfos_lab

    root = Path(tfos_lab.__file__).parent
    files = sorted([root / "__init__.py", *(path for name in _PACKAGES for path in (root / name).rglob("*.py"))])
    pickling = Path(cloudpickle.__file__).parent
    files += sorted(pickling.rglob("*.py"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in files:
            if not any(part in _SKIP for part in path.parts):
                base = root.parent if path.is_relative_to(root) else pickling.parent
                # Without times: the same code has the same digest. A ZipInfo brings its own compression: none.
                entry = zipfile.ZipInfo(str(path.relative_to(base)))
                archive.writestr(entry, path.read_bytes(), compress_type=zipfile.ZIP_DEFLATED)
    data = buffer.getvalue()
    return data, hashlib.sha256(data).hexdigest()[:16]


def make_finder() -> Callable[[str, str], Any]:
    """Return a function ``find(module, name)`` that gives something of tfos_lab wherever it is called.

    Spark pickles it by value, with the archive: it unpacks tfos_lab there, if no one has done so, and imports from it.
    It is not for the process that made it, whose modules it would replace.
    """
    archive, digest = code_archive()

    # Pickled by value, because it is no name of this module: it may mention nothing of ours.
    def find(module: str, name: str) -> Any:
        import gc
        import importlib
        import io
        import os
        import shutil
        import sys
        import tempfile
        import zipfile
        from pathlib import Path

        base = Path(tempfile.gettempdir()) / f"tfos_lab-{os.getuid()}"
        base.mkdir(mode=0o700, exist_ok=True)
        owned = base.lstat()
        if owned.st_uid != os.getuid() or owned.st_mode & 0o077:
            raise PermissionError(f"tfos_lab: {base} can be opened by others; remove it, or set TMPDIR")
        folder = base / f"code-{digest}"
        if not folder.is_dir():
            partial = Path(tempfile.mkdtemp(dir=base))
            zipfile.ZipFile(io.BytesIO(archive)).extractall(partial)
            try:
                partial.rename(folder)
            except OSError:
                shutil.rmtree(partial)  # another task of this host was quicker
        loaded = sys.modules.get("tfos_lab")
        if loaded is None or not (loaded.__file__ or "").startswith(str(folder)):
            for known in [known for known in sys.modules if known.partition(".")[0] == "tfos_lab"]:
                del sys.modules[known]
            sys.path.insert(0, str(folder))
            importlib.import_module(module)
            # Spark's workers collect garbage after each task: 40 ms for modules, which are never garbage.
            gc.freeze()
        carrying = importlib.import_module("tfos_lab.errors.channel").carrying
        return carrying(getattr(importlib.import_module(module), name))

    return find
