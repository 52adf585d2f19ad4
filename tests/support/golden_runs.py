"""A dozen runs as a reader of a notebook sees them: their HTML, their text and their picture stand in ``tests/golden``.

``make golden`` writes them anew: look at what has changed before you commit it.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

import tfos_lab
from tests.support.fake_cluster import TRACEBACK, FakeCluster
from tests.support.recorded_runs import curve, failure, this_process, write_live, write_run
from tests.support.staged_views import (
    COMPUTE,
    FORTY,
    INPUT,
    Staged,
    make_hang,
    make_straggle,
    reports_of,
    staged_cluster,
)
from tfos_lab.driver.state.events import FeedView, RunFacts, SearchFacts
from tfos_lab.notebook.display.card import NodeStacks, make_bundle
from tfos_lab.notebook.server.panel import Listed, render_panel

GOLDEN = Path(__file__).parents[1] / "golden"
NOW_S = 1_800_000_000.0


def html_of(name: str) -> str:
    """Return the HTML of a run without its style sheet and scripts."""
    return bundle_of(name)["text/html"]


def bundle_of(name: str) -> dict[str, str]:
    """Return what a notebook keeps of a run, the same at all times: its HTML, and its text if a cell shows it."""
    with _fixed_time():
        bundle = RUNS[name]()
    return {kind: _tidied(text) for kind, text in bundle.items()}


def _tidied(html: str) -> str:
    html = re.sub(r"<(style|script)>.*?</\1>", "", html, flags=re.DOTALL)
    html = re.sub(r"tfos-seen-\d+-\d+", "tfos-seen", html)
    html = re.sub(r"Seen at [\d:]+ on \d+ \w+ \d+", "Seen at 08:00:00 on 15 January 2027", html)
    return re.sub(r"fake-\d+-\d+", "fake", html).strip()


@contextmanager
def _fixed_time() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: NOW_S)
        patch.setitem(os.environ, "TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def _shown(cluster: FakeCluster, staged: Staged | None = None, **more: object) -> dict[str, str]:
    reports = [one for one in reports_of(cluster, staged) if one.step % 4 == 0] if staged else []
    return make_bundle(cluster.view(), _reader(cluster), "runs/mnist", reports, **more)


def _reader(cluster: FakeCluster) -> Callable[[str, int], str]:
    return lambda node, lines: cluster.logs(node, tail=lines)


def _reserving() -> dict[str, str]:
    cluster = FakeCluster(nodes=4)
    for node in cluster.nodes[:2]:
        cluster.change(node, state="reserved", host="exec-1", executor="1")
    cluster.set_state("reserving")
    cluster.note("executors are started first")
    return _shown(cluster)


def _training(staged: Staged) -> dict[str, str]:
    return _shown(staged_cluster(staged), staged)


def _hung() -> dict[str, str]:
    cluster = staged_cluster(INPUT)
    cluster.alter(verdict="")
    make_hang(cluster, "worker:1")
    return _shown(cluster, stacks=[NodeStacks("worker:1", 'File "Cell In[5]", line 12, in map_fun', NOW_S)])


def _done() -> dict[str, str]:
    cluster = staged_cluster(COMPUTE)
    timings = {"launched": 0.4, "reserved": 2.3, "released": 2.4, "imported": 3.1, "running": 4.0, "done": 42.5}
    view = cluster.view()
    for node in cluster.nodes:
        cluster.change(node, state="done", step=96)
        cluster.write(node, f"Epoch 3/3\nsaved by {node}\n" if node == "chief:0" else "Epoch 3/3\n")
    feed = dataclasses.replace(view.feeds[0], partitions=16, complete=True, ended_s=view.feeds[0].started_s + 9)
    cluster.set_state("done")
    cluster.alter(timings=timings, feeds=(feed,), ended_s=view.started_s + 42.5, verdict="", seconds_left=None)
    return _shown(cluster, COMPUTE)


def _failed() -> dict[str, str]:
    cluster = FakeCluster(nodes=3)
    for node in cluster.nodes:
        cluster.change(node, state="stopped", host="exec-1", step=3, total_steps=10, metrics={"loss": 0.5})
        cluster.write(node, f"{node} was here\n\x1b[32mgreen\x1b[0m\n10%\r20%\n")
    cluster.change("worker:1", state="failed", detail="ValueError: label 11 is outside the 10 classes")
    cluster.write("worker:1", TRACEBACK)
    cluster.set_state("failed", "worker:1 failed: ValueError: label 11 is outside the 10 classes")
    cluster.alter(timings={"launched": 0.1, "running": 2.0, "done": 12.3}, ended_s=cluster.view().started_s + 12.34)
    return _shown(cluster)


def _nan() -> dict[str, str]:
    cluster = staged_cluster(COMPUTE)
    for node in cluster.nodes:
        cluster.change(node, metrics={"loss": float("nan"), "accuracy": 0.1}, nan_since={"loss": 12})
    cluster.alter(alarm="loss is NaN since step 12", verdict="")
    return _shown(cluster)


def _feeds() -> dict[str, str]:
    cluster = FakeCluster(nodes=2)
    table = FeedView(rows={"chief:0": 10}, partitions=2, total_partitions=2, size_bytes=1000, complete=True, epochs=2,
                     started_s=1.0, ended_s=1.5)  # fmt: skip
    stream = FeedView(kind="stream", rows={"chief:0": 1}, partitions=9, micro_batches=1, size_bytes=50)
    answered = FeedView(kind="inference", rows={"chief:0": 1200, "worker:0": 7}, partitions=1, ended_s=3.0)
    for node in cluster.nodes:
        cluster.change(node, state="done", rows=10)
    timings = {"launched": 0.5, "reserved": 2.0, "released": 2.1, "running": 5.0, "done": 10.0}
    cluster.set_state("done")
    cluster.alter(feeds=(table, stream, answered), timings=timings, ended_s=cluster.view().started_s + 10)
    return _shown(cluster)


def _search() -> dict[str, str]:
    runs = [
        ("done", RunFacts("lr=0.1", tries=2, seconds=12.3, best=0.25)),
        ("stopped early", RunFacts("lr=1.0", tries=1, seconds=4.2, best=1.31)),
        ("failed", RunFacts("lr=0.2", tries=1, seconds=7.0)),
        ("running", RunFacts("lr=0.3", going=True, tries=1, seconds=7.0, best=0.4)),
        ("waiting", RunFacts()),
    ]
    view = FakeCluster(nodes=len(runs)).view()
    nodes = tuple(
        dataclasses.replace(node, name=f"trial {place}", state=state, run=facts, task_index=place)
        for place, (node, (state, facts)) in enumerate(zip(view.nodes, runs, strict=True))
    )
    search = SearchFacts("val_loss", 0.25, "trial 0: lr=0.1")
    view = dataclasses.replace(view, state="running", of_runs=True, search=search, nodes=nodes)
    return make_bundle(view, lambda *_: "", "runs/search")


def _thousand() -> dict[str, str]:
    staged = dataclasses.replace(COMPUTE, nodes=1000, metrics=("loss",))
    cluster = staged_cluster(staged)
    cluster.change("worker:31", state="failed", detail="ValueError: label 11 is outside the 10 classes")
    make_hang(cluster, "worker:414")
    make_straggle(cluster, "worker:577")
    return _shown(cluster, staged)


def _panel() -> dict[str, str]:
    cluster = staged_cluster(INPUT)
    make_straggle(cluster, "worker:0")
    make_hang(cluster, "worker:1")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_live(place / "mnist", cluster.view(), msgspec.structs.replace(this_process(), pid=4711))
        write_run(place, "mnist-1", ago_s=900)
        write_run(place, "titanic-1", ago_s=5000, reports=curve(0.8, 12), **failure())
        write_run(place, "old-1", ago_s=9e5, reports=curve(0.1, 30), state="stopped", reason="stopped by the user")
        found = tfos_lab.runs(place)
        live = [Listed(found[place / "mnist"], "train.ipynb", has_tensorboard=True)]
        runs = [Listed(found[f"{name}-1"], "train.ipynb") for name in ("mnist", "titanic", "old")]
        return {"text/html": render_panel(live, runs, NOW_S).replace(folder, "runs")}


RUNS: dict[str, Callable[[], dict[str, str]]] = {
    "reserving": _reserving,
    "compute-bound": lambda: _training(COMPUTE),
    "hung": _hung,
    "nan": _nan,
    "done": _done,
    "failed": _failed,
    "feeds": _feeds,
    "search": _search,
    "forty-nodes": lambda: _training(FORTY),
    "a-thousand-nodes": _thousand,
    "panel": _panel,
}
