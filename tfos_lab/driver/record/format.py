"""``run.json``: what a run was and how it went, from which a history of runs can be read later.

The file lies in the run's folder (`tfos_lab.driver.run_dir`), and holds what was asked for, and the view of the cluster
as it was written last (`tfos_lab.driver.state.events.ClusterView`). It is replaced as a whole when the cluster is
launched, when the cluster or a node changes its state, every few seconds while figures come in, and at the end. If the
kernel dies, the file of the last change remains: then the view's state is not final, and ``process`` no longer exists.

Format, version 3. One JSON object with the fields of `RunHeader` and `RunRecord`; readers ignore fields that they do
not know, and `decode` refuses a file of a later version. A field that is removed or changes its meaning raises
`VERSION`; a new field with a default does not. Times with ``_s`` are seconds since the epoch, except in ``timings``,
``restarts`` and ``feeds``: there they count from the view's ``started_s``. Metrics that are not finite are null.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeVar

import msgspec

from tfos_lab.core.roles import Role
from tfos_lab.driver.record.inputs import Plain
from tfos_lab.driver.state.events import ClusterView, MetricsReported

VERSION = 3


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel, or other process, that ran the cluster; ``pid`` and ``born`` together identify it.

    ``notebook`` is the path of the notebook that the kernel was started for, or empty.
    """

    host: str
    pid: int
    born: str
    kernel_id: str = ""
    notebook: str = ""


class CodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The user's function: its name, where it is (``"Cell In[5]"`` or a file) and its source, or that of its cell."""

    name: str
    file: str
    line: int
    source: str


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Why the run failed.

    ``type`` is the class that `Cluster.wait` raises. Of a node that failed, ``node`` is its name and ``kind`` the class
    of what its function raised. ``message`` is the first line.
    """

    type: str
    message: str
    node: str = ""
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.node}: {self.kind}: {self.message}" if self.node else f"{self.type}: {self.message}"


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One file below the folder ``output``."""

    path: str
    size_bytes: int


class RunHeader(msgspec.Struct, frozen=True, kw_only=True):
    """One run without its metrics, which are most of the file: what a list of many runs needs.

    ``options`` are the fields of `ClusterConfig`; of ``env`` it has the names only, as values may be secrets.
    ``inputs`` are numbers and short texts of ``args``, and of names that the function uses, such as ``"args.lr"``.
    ``versions`` are those of this process's environment, null where a package is not installed here. ``files`` are
    listed at the end, at most 1,000 of ``file_count``. A view ``of_runs`` is that of all independent runs of one call,
    each of which has its own record in the folders below this one.
    """

    version: int = VERSION
    written_s: float
    process: ProcessRecord
    options: dict[str, Any] = {}
    inputs: dict[str, Plain] = {}
    code: CodeRecord | None = None
    versions: dict[str, str | None] = {}
    view: ClusterView
    error: ErrorRecord | None = None
    files: tuple[FileRecord, ...] = ()
    file_count: int = 0


class RunRecord(RunHeader, frozen=True, kw_only=True):
    """One run. ``metrics`` is a sample, evenly spread, of at most 2,000 reports."""

    metrics: tuple[MetricsReported, ...] = ()


def encode(record: RunRecord) -> bytes:
    """Return the record as JSON that people can read, too."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


class _Version(msgspec.Struct):
    version: int


Kind = TypeVar("Kind", bound=RunHeader)


def decode(data: bytes, kind: type[Kind]) -> Kind:
    """Return the record that ``run.json`` holds; or the header alone, which takes a fraction of the time.

    Raises ValueError if it is damaged, or of a later version.
    """
    version = msgspec.json.decode(data, type=_Version).version
    if version > VERSION:
        raise ValueError(f"run.json is of version {version}; this tfos_lab reads versions up to {VERSION}")
    if version == VERSION:
        return msgspec.json.decode(data, type=kind)
    old = msgspec.json.decode(data)
    return msgspec.convert(of_version_3(old if version == 2 else of_version_2(old)), kind)


_Json = dict[str, Any]

_FIELDS_OF_VIEW = ("name", "launcher", "started_s", "reason", "notes", "restarts", "verdict", "progress",
                   "of_runs", "search")  # fmt: skip


def of_version_2(old: _Json) -> _Json:
    """Return what a file of version 2 would hold.

    Version 1 listed the fields of the view beside the others, had no type of its own for a role, and counted the times
    of metrics from the start.
    """
    view = {name: old[name] for name in _FIELDS_OF_VIEW if name in old}
    counts: Counter[str] = Counter()
    feeds = []
    for feed in old.get("feeds", ()):
        feeds.append({**feed, "number": counts[feed["kind"]]})
        counts[feed["kind"]] += 1
    view |= {
        "cluster_id": old["id"],
        "state": old.get("outcome") or old["state"],
        "ended_s": old.get("ended_s"),
        "timings": old.get("timings", {}),
        "nodes": [_node_of_version_1(node) for node in old.get("nodes", ())],
        "feeds": feeds,
    }
    metrics = [
        {**one, "time_s": old["started_s"] + one["time_s"], "total_steps": None} for one in old.get("metrics", ())
    ]
    return {**old, "version": 2, "view": view, "metrics": metrics}


def of_version_3(old: _Json) -> _Json:
    """Return what a file of version 3 would hold; version 2 called a node's name ``node``."""
    view = old["view"]
    nodes = [{**node, "name": node["node"]} for node in view.get("nodes", ())]
    return {**old, "version": 3, "view": {**view, "nodes": nodes}}


def _node_of_version_1(old: _Json) -> _Json:
    role, _, index = old["node"].partition(":")
    part = old.get("part")
    return {
        **old,
        "job_name": "run" if part else role,
        "task_index": part["number"] if part else int(index) if index.isdecimal() else 0,
        "is_chief": any(one.leads and one == role for one in Role),
        "run": part,
    }
