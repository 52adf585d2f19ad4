"""Ships tfos_lab to the executors: as a small archive inside the Spark job, unpacked once per host.

So executors run the same code as the notebook, whether tfos_lab is installed there or not.
"""

from __future__ import annotations

import functools
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# What tasks and nodes import. Driver-side packages (driver, launchers, notebook, cli) stay at home.
_PACKAGES = ("compat", "core", "data", "ml", "node", "scoring")
_MODULES = ("__init__", "errors", "gfile", "texts")
# What only the driver needs of these packages, among it what shows clusters to other processes of its machine.
_AT_HOME = {
    *("__pycache__", "driver", "cluster_records.py"),
    *("__main__.py", "compat/cluster.py", "compat/program.py", "compat/training.py", "listener.py"),
    *("data/prepare.py", "data/session_stores.py"),
    *("scoring/columns.py", "scoring/predict.py"),
}


@functools.cache
def code_archive() -> tuple[bytes, str]:
    """Return the archive, the text of each file by its path as compressed JSON, and its digest."""
    import cloudpickle

    import tfos_lab

    root = Path(tfos_lab.__file__).parent
    # Functions have to be unpickled by the version of cloudpickle that pickled them.
    pickling = Path(cloudpickle.__file__).parent
    folders = [*(root / name for name in _PACKAGES), pickling]
    modules = [root / f"{name}.py" for name in _MODULES]
    files = {}
    for path in [*modules, *(path for folder in folders for path in sorted(folder.rglob("*.py")))]:
        if not _AT_HOME & {*path.parts, f"{path.parent.name}/{path.name}"}:
            base = (root if path.is_relative_to(root) else pickling).parent
            files[str(path.relative_to(base))] = path.read_text(encoding="utf-8")
    # The table of a zip file would take 8 kB more, and files that are compressed one by one a third more.
    data = zlib.compress(json.dumps(files).encode(), level=9)
    return data, hashlib.sha256(data).hexdigest()[:16]


def make_finder() -> Callable[[str, str], Callable[..., Any]]:
    """Return ``find(module, name)``, which returns a function or class of tfos_lab in any Python process.

    Spark pickles `find` by value, with the archive in it. It unpacks the archive, unless that has been done on this
    host, and imports from there. Errors of tfos_lab that the returned functions raise cross Spark with type and fields
    (see `crossing`). Do not call `find` in the process that made it: it would replace the modules there.
    """
    archive, digest = code_archive()

    # A local function is pickled by value. It must not refer to any name of this module.
    def find(module: str, name: str) -> Callable[..., Any]:
        import gc
        import importlib
        import json
        import os
        import shutil
        import sys
        import tempfile
        import zlib
        from pathlib import Path

        # As `core.runtime_files.spool_root`, which is not here yet.
        disks = [disk for disk in os.environ.get("LOCAL_DIRS", "").split(",") if disk and os.access(disk, os.W_OK)]
        base = Path((disks or [tempfile.gettempdir()])[0]) / f"tfos_lab-{os.getuid()}"
        base.mkdir(mode=0o700, exist_ok=True)
        owned = base.lstat()
        if owned.st_uid != os.getuid() or owned.st_mode & 0o077:
            raise PermissionError(f"tfos_lab: {base} can be opened by others; remove it, or set TMPDIR")
        folder = base / f"code-{digest}"
        if not folder.is_dir():
            partial = Path(tempfile.mkdtemp(dir=base))
            for path, text in json.loads(zlib.decompress(archive)).items():
                (partial / path).parent.mkdir(parents=True, exist_ok=True)
                (partial / path).write_text(text, encoding="utf-8")
            try:
                partial.rename(folder)
            except OSError:
                shutil.rmtree(partial)  # another task on this host was faster
        loaded = sys.modules.get("tfos_lab")
        if loaded is None or not (loaded.__file__ or "").startswith(str(folder)):
            for known in [known for known in sys.modules if known.partition(".")[0] == "tfos_lab"]:
                del sys.modules[known]
            sys.path.insert(0, str(folder))
            importlib.import_module(module)
            # Spark's workers collect garbage after each task, and to traverse these modules each time takes 40 ms.
            gc.freeze()
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
        carried: Callable[..., Any] = importlib.import_module("tfos_lab.core.crossing").carrying(found)
        return carried

    return find


def make_task(module: str, name: str, *arguments: Any) -> Callable[[Iterator[Any]], Any]:
    """Return a function for Spark's `mapInArrow` that calls a function of tfos_lab on the executor.

    It is called as ``function(batches, *arguments)`` and yields Arrow record batches.
    """
    find = make_finder()

    # As above.
    def task(batches: Iterator[Any]) -> Any:
        yield from find(module, name)(batches, *arguments)

    return task
