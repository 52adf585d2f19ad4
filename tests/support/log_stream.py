"""Four real nodes print thousands of lines a second into a real page: what is lost, how smooth it is, what it costs.

The browser's test and the benchmark run the same cells.
"""

from __future__ import annotations

import ast
import os
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Locator, expect

from tests.support.jupyter_rig import Notebook
from tests.support.quick import QUICK_ENV

NODES = 4

# The nodes stay, with all they have printed, until the page has been looked at twice: it may be late.
_HOLD_S = 120.0

_MARK = """\
import time
from pathlib import Path
%load_ext tfos_lab
seen = Path("{seen}")
seen.unlink(missing_ok=True)
before = time.process_time(), time.monotonic()
"""

_STREAM = """\
%%tfos cluster_size={nodes} local=processes name=stream env={env}
import time
number, started = 0, time.monotonic()
while number < {lines}:
    due = min({lines}, int((time.monotonic() - started) * {lines_per_s}) + 1)
    node = f"{{ctx.job_name}}:{{ctx.task_index}}"
    print("".join(f"{{node}} line {{line:07d}} <b>a</b><script>document.title = 'owned'</script>\\n"
        for line in range(number, due)), end="", flush=True)
    if due // 500 > number // 500:
        ctx.report(step=due, total_steps={lines}, loss=ctx.worker_num + 1000.0 / (due + 500))
    number = due
    time.sleep(0.01)
ended = time.monotonic()
while not seen.exists() and time.monotonic() < ended + {hold_s}:
    time.sleep(0.05)
"""

_MEASURE = """\
cpu_s, wall_s = time.process_time() - before[0], time.monotonic() - before[1]
whole = {}
for view in stream.nodes:
    numbers = [line.split()[2] for line in stream.logs(view.name).splitlines()]
    whole[view.name] = numbers == [f"{line:07d}" for line in range(LINES)]
print([cpu_s, wall_s, whole])
"""


def stream_cells(lines_per_s: int, seconds: float) -> list[str]:
    """Return the cells to run one after the other: mark, stream, measure."""
    lines = int(lines_per_s * seconds)
    stream = _STREAM.format(nodes=NODES, env=QUICK_ENV, lines=lines, lines_per_s=lines_per_s, hold_s=_HOLD_S)
    return [_MARK.format(seen=_seen_file()), stream, _MEASURE.replace("LINES", str(lines))]


@dataclass(frozen=True)
class Streamed:
    """What was seen: frames in ms, what reached the page, the kernel's share of a core, and which files are whole."""

    p95_frame_ms: float
    longest_frame_ms: float
    frames: int
    page_lines_per_s: float
    kernel_cpu_share: float
    seconds: float
    whole: dict[str, bool]


def watch_stream(notebook: Notebook, first_cell: int, seconds: float) -> Streamed:
    """Run the three cells from ``first_cell`` on, and measure while the nodes print."""
    notebook.run_cell(first_cell)
    notebook.start_cell(first_cell + 1)
    panel = notebook.page.locator(".tfos-live").get_by_role("region", name="Log")
    expect(panel).to_contain_text("earlier lines not kept here")
    first, first_s = _forgotten(panel), time.monotonic()
    notebook.watch_frames()
    notebook.page.wait_for_timeout(max(1.0, seconds - 4.0) * 1000)
    frames = sorted(notebook.frame_times_ms())
    page_lines_per_s = (_forgotten(panel) - first) / (time.monotonic() - first_s)
    _seen_file().touch()
    notebook.wait_for_end(first_cell + 1)
    _seen_file().unlink()
    notebook.run_cell(first_cell + 2)
    cpu_s, wall_s, whole = ast.literal_eval(notebook.output(first_cell + 2).inner_text().strip())
    return Streamed(
        p95_frame_ms=frames[int(len(frames) * 0.95)],
        longest_frame_ms=frames[-1],
        frames=len(frames),
        page_lines_per_s=page_lines_per_s,
        kernel_cpu_share=cpu_s / wall_s,
        seconds=wall_s,
        whole=whole,
    )


def _seen_file() -> Path:
    """Return what tells the nodes that the page has been looked at."""
    return Path(tempfile.gettempdir()) / f"tfos-stream-seen-{os.getpid()}"


def _forgotten(panel: Locator) -> int:
    """Return how many lines the page has had and let go; it keeps as many as before."""
    said = re.search(r"([\d,]+) earlier line", panel.inner_text())
    assert said is not None
    return int(said[1].replace(",", ""))
