"""Profiles of nodes: asked for, brought home, and drawn.

The trace comes to the event files; a flame graph, one SVG that needs nothing else, to the run's folder. In it the width
of a box is the time in which a function was in the stack, and the boxes below it are what it has called.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tfos_lab.core import messages as m
from tfos_lab.core.markup import Html, h, join
from tfos_lab.core.paths import split_scheme
from tfos_lab.errors import ConfigError, ProfileFailed
from tfos_lab.node.files.fetcher import FileFetcher
from tfos_lab.node.profile import profile_folder

if TYPE_CHECKING:
    from tfos_lab.driver.head import Head
    from tfos_lab.driver.state.events import NodeView

_LONGEST_S = 600.0
# A process that does not answer is not profiled.
_DEAF_S = 3.0
# TensorFlow's profiler takes some seconds to begin, and to write its trace.
_EXTRA_S = 30.0
# The pieces of a trace come one after the other.
_PATIENCE_S = 10.0
_MAX_BYTES = 1 << 30
_HOTTEST = 5
# Seen with TensorFlow 2.21, in two profiles of three: its tracer's events that one thread begins and another ends, as
# collectives do, are put together wrongly when a trace ends (``TraceMeRecorder::Stop``).
NO_TRACE = (
    "no trace: TensorFlow's profiler may crash a node that works with others, and the run with it (seen with 2.21); "
    "`%tfos profile … trace` or cluster.profile(trace=True) takes one all the same"
)
_SILENT = (
    "it has not answered within {waited_s:g} s: its process may be stopped, or locked by a long call into C (see "
    "cluster.stacks()), or its host may be too busy"
)


@dataclass(frozen=True)
class Profile:
    """What a node spent its time on; a notebook shows it as a flame graph.

    Attributes
    ----------
    node : str
        The node.
    seconds : float
        How long it was profiled.
    flame_graph : pathlib.Path
        An SVG in the run's folder: the Python functions of all threads that worked, by time.
    trace_dir : pathlib.Path or None
        Where TensorFlow's trace is, among the run's event files: TensorBoard shows it if its profile plugin is
        installed. None where there is no trace.
    note : str
        Why there is no trace, or not all of it.
    hottest : list of (str, float)
        The functions that were innermost most often, and their shares of the time, 0 to 1.
    """

    node: str
    seconds: float
    flame_graph: Path
    trace_dir: Path | None
    note: str = ""
    hottest: list[tuple[str, float]] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.node}, {self.seconds:g} s: {self.flame_graph}"]
        lines += [f"  {share:6.1%}  {name}" for name, share in self.hottest]
        return "\n".join([*lines, self._trace])

    @property
    def _trace(self) -> str:
        return f"TensorFlow's trace: {self.trace_dir}" if self.trace_dir is not None else self.note

    def _repr_html_(self) -> str:
        graph = self.flame_graph.read_text(encoding="utf-8")
        return join(h("div", Html(graph), style="overflow:auto;max-height:32em"), h("p", self._trace))


def profile_node(head: Head, view: NodeView, rank: int, seconds: float, *, no_trace: str = "") -> Profile:
    """Profile a node; without a trace if there is a reason.

    Raises ConfigError for what is no time, or too long a one, and ProfileFailed if the node has no profile, or does not
    answer.
    """
    if not isinstance(seconds, int | float) or not 0 < seconds <= _LONGEST_S:
        raise ConfigError([f"seconds={seconds!r}: give more than 0 and at most {_LONGEST_S:g}"])
    deaf = head.ask_for_stacks({rank}, _DEAF_S).get(rank)
    if deaf is not None and deaf.condition.is_deaf:
        raise ProfileFailed(node=view.name, reason=deaf.text.partition("\n")[0])
    waited_s = seconds + _EXTRA_S
    profiled: m.Profiled | None = head.ask({rank}, m.ProfileWanted(0, seconds, no_trace), waited_s).get(rank)
    if profiled is None:
        gone = "its cluster has ended meanwhile, or its nodes start again"
        raise ProfileFailed(node=view.name, reason=gone if head.over.is_set() else _SILENT.format(waited_s=waited_s))
    if profiled.problem:
        raise ProfileFailed(node=view.name, reason=profiled.problem)
    node, files = view.name, head.cluster.files
    label = f"profile-{node.replace(':', '-')}-{time.strftime('%H%M%S')}-{profiled.request}"
    path = files.path / f"{label}.svg"
    title = f"{node}: Python functions, sampled for {seconds:g} s every {profiled.period_s * 1000:g} ms"
    path.write_text(flame_graph(profiled.samples, title=title, period_s=profiled.period_s), encoding="utf-8")
    folder, note = Path(split_scheme(files.event_home)[2]) / label, profiled.note
    if profiled.files:
        note = note or _fetch_trace(head, profiled, folder)
    has_trace = bool(profiled.files) and not note
    return Profile(node, seconds, path, folder if has_trace else None, note, hottest(profiled.samples))


def _fetch_trace(head: Head, profiled: m.Profiled, home: Path) -> str:
    """Fetch the trace's files; return why that has failed, or ""."""
    size_bytes = sum(profiled.files.values())
    if size_bytes > _MAX_BYTES:
        return f"no trace: it has {size_bytes >> 20} MiB, more than {_MAX_BYTES >> 20}; profile fewer seconds"
    folder, files = profile_folder(profiled.request), [m.ListedFile(*file) for file in profiled.files.items()]
    trace = FileFetcher(folder, home)
    with head.lock:
        asked = head.cluster.output.fetch(trace, m.FilesListed(folder, 0, files, rank=profiled.rank))
    head.request(lambda _now_s: asked)
    taken_bytes = -1

    def has_moved() -> bool:
        return trace.is_answered or trace.taken_bytes > taken_bytes or head.over.is_set()

    while not trace.is_answered and trace.taken_bytes > taken_bytes:
        taken_bytes = trace.taken_bytes
        head.wait_for(has_moved, _PATIENCE_S)
    if not trace.missing:
        return ""
    why = next(iter(trace.problems.values()), f"the node stopped sending {trace.missing[0].name}")
    return f"no trace: it could not be brought to {home} ({why})"


# ---- the flame graph ------------------------------------------------------------------------------------------------


_WIDTH = 1000.0
_ROW = 17.0
_HEAD = 24.0
# Boxes narrower than this are left out; in wider ones so many letters fit.
_NARROWEST = 0.8
_LETTER = 6.3
# Colours by whose code it is: the user's stands out.
_COLOURS = {"": "#f2a33a", "tensorflow": "#8fb8de", "keras": "#a9cfa4", "Python": "#d9d9d9", "tfos_lab": "#cdbfe3"}
_OTHERS = "#c9d6c3"


@dataclass
class Frame:
    """A function in the graph; ``count`` is in samples."""

    name: str
    package: str = ""
    count: int = 0
    calls: dict[str, Frame] = field(default_factory=dict)


def tree_of(samples: Iterable[tuple[Sequence[str], int]]) -> Frame:
    """Return the samples as a tree whose root has all of them; a frame is ``package<TAB>name``."""
    root = Frame("all")
    for stack, count in samples:
        root.count += count
        frame = root
        for text in stack:
            package, _, name = text.rpartition("\t")
            frame = frame.calls.setdefault(text, Frame(name, package))
            frame.count += count
    return root


def flame_graph(samples: Iterable[tuple[Sequence[str], int]], *, title: str, period_s: float) -> Html:
    """Return the SVG of samples that were taken every ``period_s`` seconds."""
    root = tree_of(samples)
    boxes = list(_boxes(root, 0.0, _WIDTH, 0)) if root.count else []
    height = _HEAD + _ROW * (1 + max((depth for *_, depth in boxes), default=0)) + 4
    return h(
        "svg",
        h("rect", width="100%", height="100%", fill="#ffffff"),
        h("text", title, x=4, y=15, fill="#222"),
        *(_draw(box, root.count, period_s) for box in boxes),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH:g} {height:g}",
        width="100%",
        font_family="ui-monospace, monospace",
        font_size=10.5,
    )


# Where a frame is drawn: x, width, and depth.
_Box = tuple[Frame, float, float, int]


def _boxes(frame: Frame, x: float, width: float, depth: int) -> Iterator[_Box]:
    if width < _NARROWEST:
        return
    yield frame, x, width, depth
    for call in sorted(frame.calls.values(), key=lambda call: (-call.count, call.name)):
        share = width * call.count / frame.count
        yield from _boxes(call, x, share, depth + 1)
        x += share


def _draw(box: _Box, total: int, period_s: float) -> Html:
    frame, x, width, depth = box
    y = _HEAD + depth * _ROW
    colour = _COLOURS.get(frame.package, _OTHERS)
    told = f"{frame.name}: {100 * frame.count / total:.1f} %, {frame.count * period_s:.2f} s"
    letters = int(width / _LETTER) - 1
    text = frame.name if len(frame.name) <= letters else frame.name[: max(0, letters - 1)] + "…"
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{_ROW - 1:g}"}
    words = h("text", text, x=f"{x + 3:.1f}", y=f"{y + 12:.1f}", fill="#1a1a1a") if letters > 2 else None
    return h("g", h("title", told), h("rect", **place, fill=colour, stroke="#fff", stroke_width=0.5), words)


def hottest(samples: Iterable[tuple[Sequence[str], int]]) -> list[tuple[str, float]]:
    """Return the functions that were innermost most often, with their share of all samples, 0 to 1."""
    counts = Counter[str]()
    for stack, count in samples:
        counts[stack[-1].rpartition("\t")[2] if stack else ""] += count
    return [(name, count / counts.total()) for name, count in counts.most_common(_HOTTEST)]
