"""Finds and runs the Chromium of this machine, for the browser tests; `make test-tools` runs this file, to find it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ARGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Run a Chromium until the block ends; a thread can have one of them at a time."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(_ARGS))
        yield browser
        browser.close()


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
