"""Draws samples of stacks as a flame graph: one SVG that needs nothing else. Pure.

The width of a box is the time in which a function was in the stack, the boxes below it are what it has called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tfos_lab.core.markup import Html, h

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
    height = _HEAD + _ROW * (1 + max((box.depth for box in boxes), default=0)) + 4
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


class _Box(NamedTuple):
    """Where a frame is drawn."""

    frame: Frame
    x: float
    width: float
    depth: int


def _boxes(frame: Frame, x: float, width: float, depth: int) -> Iterator[_Box]:
    if width < _NARROWEST:
        return
    yield _Box(frame, x, width, depth)
    for call in sorted(frame.calls.values(), key=lambda call: (-call.count, call.name)):
        share = width * call.count / frame.count
        yield from _boxes(call, x, share, depth + 1)
        x += share


def _draw(box: _Box, total: int, period_s: float) -> Html:
    frame, y = box.frame, _HEAD + box.depth * _ROW
    colour = _COLOURS.get(frame.package, _OTHERS)
    told = f"{frame.name}: {100 * frame.count / total:.1f} %, {frame.count * period_s:.2f} s"
    letters = int(box.width / _LETTER) - 1
    text = frame.name if len(frame.name) <= letters else frame.name[: max(0, letters - 1)] + "…"
    place = {"x": f"{box.x:.1f}", "y": f"{y:.1f}", "width": f"{box.width:.1f}", "height": f"{_ROW - 1:g}"}
    words = h("text", text, x=f"{box.x + 3:.1f}", y=f"{y + 12:.1f}", fill="#1a1a1a") if letters > 2 else None
    return h("g", h("title", told), h("rect", **place, fill=colour, stroke="#fff", stroke_width=0.5), words)


def hottest(samples: Iterable[tuple[Sequence[str], int]], at_most: int = 5) -> list[tuple[str, float]]:
    """Return the functions that were innermost most often, with their share of all samples, 0 to 1."""
    counts: dict[str, int] = {}
    for stack, count in samples:
        name = stack[-1].rpartition("\t")[2] if stack else ""
        counts[name] = counts.get(name, 0) + count
    total = sum(counts.values())
    return [(name, counts[name] / total) for name in sorted(counts, key=lambda name: -counts[name])[:at_most]]
