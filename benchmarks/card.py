"""What the live card of a large cluster costs: the kernel that draws it, and the page that shows it in JupyterLab."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Row
from tests.support.jupyter_rig import JupyterRig, Notebook

_NODES, _UPDATES_PER_S, _SECONDS = 64, 10, 20
# The nodes are acted by the kernel's main thread, whose time is not counted. Each reports a loss of its own, so that no
# rows and no curves are put together.
_CELL = f"""
import math, threading, time
import psutil
from tests.support.fake_cluster import FakeCluster
from tfos_lab.driver.state.events import MetricsReported
from tfos_lab.notebook.display import open_display

cluster = FakeCluster(nodes={_NODES})
names = [node.name for node in cluster.view().nodes]
for name in names:
    cluster.change(name, state="running", host="h1")
cluster.set_state("running")
display = open_display(cluster, interactive=True)

def cpu_s():
    used = {{thread.id: thread.user_time + thread.system_time for thread in psutil.Process().threads()}}
    return sum(used.values()) - used[threading.get_native_id()]

time.sleep(3)
before_s, began_s = cpu_s(), time.monotonic()
for step in range(1, {_SECONDS * _UPDATES_PER_S} + 1):
    for index, name in enumerate(names):
        metrics = {{"loss": math.exp(-step / 100) + index / 100}}
        cluster.change(name, step=step, metrics=metrics)
        told = MetricsReported(time_s=time.time(), node=name, step=step, total_steps=None, metrics=metrics)
        cluster.bus.publish(told)
    time.sleep(max(0.0, began_s + step / {_UPDATES_PER_S} - time.monotonic()))
print("share", (cpu_s() - before_s) / (time.monotonic() - began_s))
cluster.set_state("done")
display.close()
"""
# Of them, while the cell runs and the page has drawn its first card.
_WATCHED_FROM_S, _WATCHED_S = 8, 10


def measure() -> Iterator[Row]:
    """A card of many nodes that all change, several times a second."""
    with tempfile.TemporaryDirectory() as folder, JupyterRig(Path(folder)) as rig:
        notebook = rig.open_notebook("card.ipynb", [_CELL])
        notebook.wait_until_ready()
        notebook.start_cell(0)
        page = _share_of_page(notebook)
        notebook.wait_for_end(0)
        found = re.search(r"share ([\d.e-]+)", notebook.output(0).inner_text())
    assert found is not None, "the cell has failed"
    what = f"card of {_NODES} nodes, {_UPDATES_PER_S} updates/s each"
    for where, share in (("kernel", float(found[1])), ("page's main thread", page)):
        yield Row(f"{what}: {where}", "% of a core", 100 * share, None, "< 10 %", share < 0.1, 1)


def _share_of_page(notebook: Notebook) -> float:
    """Return which part of the time the page's main thread works."""
    session = notebook.page.context.new_cdp_session(notebook.page)
    session.send("Performance.enable")
    notebook.page.wait_for_timeout(1000 * _WATCHED_FROM_S)
    before = _task_s(session.send("Performance.getMetrics"))
    notebook.page.wait_for_timeout(1000 * _WATCHED_S)
    return (_task_s(session.send("Performance.getMetrics")) - before) / _WATCHED_S


def _task_s(answer: dict[str, list[dict[str, float]]]) -> float:
    return next(metric["value"] for metric in answer["metrics"] if metric["name"] == "TaskDuration")
