"""Finds the Chromium of this machine, for the browser tests and for `make test-tools`, which runs this file."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> Path | None:
    """Return the path of a Chromium: ``TFOS_LAB_CHROMIUM``, one on PATH, or one that Playwright downloaded."""
    return next(_candidates(), None)


def _candidates() -> Iterator[Path]:
    if chosen := os.environ.get("TFOS_LAB_CHROMIUM"):
        yield Path(chosen)
    for name in _NAMES:
        if path := shutil.which(name):
            yield Path(path)
    yield from sorted(Path.home().glob(".cache/ms-playwright/chromium-*/chrome-linux*/chrome"), reverse=True)


if __name__ == "__main__":
    found = find_chromium()
    if found is None:
        sys.exit("no Chromium: set TFOS_LAB_CHROMIUM, install one, or run `.venv/bin/playwright install chromium`")
    print(found)  # noqa: T201 - its answer to a script
