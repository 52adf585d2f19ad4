"""An environment in which fork servers are warm at once, for tests of what happens to processes.

Everything in it is real but TensorFlow, whose import takes seconds and says nothing about who lives and who dies.
"""

from __future__ import annotations

from pathlib import Path

QUICK_ENV = {"PYTHONPATH": str(Path(__file__).parent / "quick_tensorflow")}


def quick_cell(options: str, body: str) -> str:
    """Return a real cell for two quick nodes."""
    return f"%%tfos {options} cluster_size=2 local=processes env={QUICK_ENV}\n{body}"
