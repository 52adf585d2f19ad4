"""``python -m tfos_lab.compat SCRIPT ARGUMENTS``; and, by its path, what spark-submit runs."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__ and not sys.flags.safe_path:
    # Started by its path: what lies beside it is a package, not top-level modules called `util` or `compat`.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tfos_lab.compat.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
