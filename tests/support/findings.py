"""What nodes have found, in files: what parameter servers and evaluators return is not waited for.

They are ended once the others have returned, and may then be on their way still.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any


def leave(folder: str, ctx: Any, found: Any, *, nodes: int | None = None) -> None:
    """Write what this node has found, and return once all nodes have; or so many, where others only serve."""
    part = Path(folder) / f"{ctx.node}.part"
    part.write_text(json.dumps(found))
    part.rename(part.with_suffix(".json"))
    while len(findings(folder)) < (nodes or sum(map(len, ctx.cluster_spec.values()))):
        time.sleep(0.02)


def findings(folder: str | Path) -> dict[str, Any]:
    """Return what nodes have left in a folder, by node; tuples have become lists."""
    return {path.stem: json.loads(path.read_text()) for path in Path(folder).glob("*.json")}
