"""Stacks as text: each thread with its frames, the outermost first, and the lines of code that they are at."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Sequence

from tfos_lab.node.stacks.frames import Place, own_part

MAIN = "main thread"
_MAX_FRAMES = 60


def render(stacks: Iterable[tuple[str, Sequence[Place]]]) -> str:
    """Return the text of named stacks, in their order; of the main thread, what the user's function has called."""
    return "\n\n".join(_render(name, own_part(stack) if name == MAIN else stack) for name, stack in stacks)


def _render(name: str, stack: Sequence[Place]) -> str:
    left_out = len(stack) - _MAX_FRAMES
    lines = [f"{name} (most recent call last):", *([f"  … {left_out} frames …"] if left_out > 0 else [])]
    for place in stack[-_MAX_FRAMES:]:
        lines.append(f"  {place.location}")
        if source := linecache.getline(place.file, place.line).strip():
            lines.append(f"    {source}")
    return "\n".join(lines)
