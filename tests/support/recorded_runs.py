"""Folders of runs as kernels leave them, for tests of the history: records without the runs."""

from __future__ import annotations

import math
import os
import socket
import time
from pathlib import Path
from typing import Any

import msgspec

from tfos_lab.core import cluster_records
from tfos_lab.core.config import ClusterConfig
from tfos_lab.driver.record.format import CodeRecord, ErrorRecord, FileRecord, ProcessRecord, RunRecord, encode
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.state.events import ClusterView, FeedView, MetricsReported, NodeView

NODES = ("chief:0", "worker:0")
# A process that cannot be there, on this machine.
GONE = ProcessRecord(host=socket.gethostname(), pid=1 << 30, born="long ago")
CODE = """%%tfos cluster_size=2 data=train_df epochs=3 args={'lr': LR}
with ctx.strategy().scope():
    model = build(args['lr'])
model.fit(ctx.dataset(64, label='label'), callbacks=ctx.callbacks())
"""


def this_process(**fields: str) -> ProcessRecord:
    """Return this very process, whose runs are live."""
    pid = os.getpid()
    return ProcessRecord(host=socket.gethostname(), pid=pid, born=cluster_records.birth_of(pid), **fields)


def curve(rate: float, steps: int = 60, start: float = 2.3) -> list[dict[str, float]]:
    """Return the metrics of a training that goes well, or not."""
    return [
        {
            "loss": start * math.exp(-rate * step / 12) + 0.06 + 0.05 * math.sin(step * (1 + rate)) / (1 + step / 8),
            "accuracy": 1 - 0.9 * math.exp(-rate * step / 10),
        }
        for step in range(steps)
    ]


def write_run(place: Path, run_id: str = "mnist-20260101-120000-1f2e", *, ago_s: float = 3600.0, **fields: Any) -> Path:
    """Write a run below ``place`` and return its folder; ``fields`` replace those of a run that went well.

    ``reports`` are metrics, one for each step; ``log`` is what the chief has printed.
    """
    reports = fields.pop("reports", curve(1.0))
    log = fields.pop("log", "Epoch 3/3\nloss 0.0601\n")
    record = make_record(run_id, time.time() - ago_s, reports, **fields)
    folder = _write_record(place / run_id, record)
    (folder / "chief-0.log").write_text(log)
    return folder


def write_live(folder: Path, view: ClusterView, process: ProcessRecord | None = None) -> Path:
    """Write what a kernel, by default this process, has recorded of its run by now; return the run's folder."""
    return _write_record(folder, RunRecord(written_s=time.time(), process=process or this_process(), view=view))


def _write_record(folder: Path, record: RunRecord) -> Path:
    files = RunDir(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files.replace(files.record, encode(record))
    return folder


def make_record(run_id: str, started_s: float, reports: list[dict[str, float]], **fields: Any) -> RunRecord:
    """Return the record of a run that went well, with ``fields`` of it, or of its view, in place of its own."""
    took_s = 0.4 + len(reports) / 4
    last = reports[-1] if reports else {}
    view = {
        "cluster_id": run_id,
        "name": run_id.split("-", maxsplit=1)[0],
        "launcher": "local",
        "started_s": started_s,
        "ended_s": started_s + took_s,
        "state": "done",
        "nodes": tuple(
            NodeView(
                name, *_role_of(name), name == NODES[0], "done", host="h1", step=len(reports), rows=1000, metrics=last
            )
            for name in NODES
        ),
        "timings": {
            "launched": 0.1, "reserved": 0.2, "released": 0.22, "imported": 0.3, "running": 0.4, "done": took_s,
        },
        "feeds": (
            FeedView(rows=dict.fromkeys(NODES, 500), partitions=4, size_bytes=4000, epochs=2, complete=True,
                     started_s=0.4, ended_s=1.0),
        ),
    }  # fmt: skip
    of_view = {name: fields.pop(name) for name in list(fields) if name in ClusterView.__dataclass_fields__}
    record = RunRecord(
        written_s=started_s + took_s,
        process=GONE,
        options={**msgspec.to_builtins(ClusterConfig(cluster_size=2)), "env": []},
        inputs={"args.lr": 0.01, "BATCH": 64},
        code=CodeRecord(name="map_fun", file="Cell In[5]", line=1, source=CODE),
        versions={"python": "3.11.7", "tfos_lab": "1.0", "tensorflow": "2.21.0"},
        view=ClusterView(**{**view, **of_view}),
        metrics=tuple(
            MetricsReported(time_s=started_s + 0.4 + step / 4, node=name, step=step, total_steps=None, metrics=metrics)
            for step, metrics in enumerate(reports)
            for name in NODES
        ),
        files=(FileRecord(path="model.keras", size_bytes=1200),),
        file_count=1,
    )
    return msgspec.structs.replace(record, **fields)


def _role_of(node: str) -> tuple[str, int]:
    job_name, _, index = node.partition(":")
    return job_name, int(index)


def failure(node: str = "worker:0", kind: str = "ValueError", message: str = "no such label: 11") -> dict[str, Any]:
    """Return the fields of a run that failed."""
    error = ErrorRecord(type="NodeFailed", node=node, kind=kind, message=message)
    return {"state": "failed", "error": error, "reason": f"{node} failed: {kind}: {message}"}


def write_some(place: Path) -> None:
    """Write runs of every kind: well and badly ended, live, lost, independent ones, and unreadable ones."""
    day_s = 86_400.0
    tuned = {"args.lr": 0.1, "BATCH": 128}
    write_run(place, "mnist-20260101-120000-1f2e", ago_s=3 * day_s)
    better = CODE.replace("64", "128").replace("    model", "    # Wider.\n    model")
    code = CodeRecord(name="map_fun", file="Cell In[5]", line=1, source=better)
    write_run(place, "mnist-20260102-120000-2a3b", ago_s=2 * day_s, reports=curve(2.2), inputs=tuned, code=code)
    write_run(
        place, "mnist-20260103-120000-3c4d", ago_s=day_s, reports=curve(0.1, 30, 2.6), inputs={**tuned, "args.lr": 1.0}
    )
    write_run(place, "titanic-20260104-120000-4e5f", ago_s=5000, reports=curve(0.8, 12), **failure())
    write_run(place, "mnist-20260105-120000-5a6b", ago_s=600, state="running", ended_s=None, process=GONE)
    write_run(
        place, "mnist-20260106-120000-6c7d", ago_s=30, state="running", ended_s=None,
        process=this_process(), reports=curve(1.4, 20), inputs={**tuned, "args.lr": 0.05},
    )  # fmt: skip
    for part in range(2):
        write_run(place / "search-20260107-120000-7e8f", f"run-{part}", ago_s=900 - part, reports=[], name="search",
                  cluster_id=f"search-20260107-120000-7e8f.{part}")  # fmt: skip
    (place / "damaged-1").mkdir()
    (place / "damaged-1" / "run.json").write_text('{"version": 1,')
    (place / "foreign").mkdir()
    (place / "foreign" / "run.json").write_text('{"params": {"lr": 1}}')
