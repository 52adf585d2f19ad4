"""Our warnings: shown in the cell that they come from, never in another."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from tfos_lab.jupyter.display import warning_messages

logger = logging.getLogger("tfos_lab.engine.cluster")


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    warning_messages.install()
    warning_messages.install()
    yield
    warning_messages.remove()


@pytest.fixture
def unconfigure(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Configure logging as in a notebook; pytest has changed it."""
    return lambda: monkeypatch.setattr(logging.getLogger(), "handlers", [])


def test_the_main_thread_s_warnings_are_shown_once(unconfigure, capsys: pytest.CaptureFixture[str]) -> None:
    unconfigure()
    logger.warning("slow: %d s", 7)
    logger.info("nobody asked")
    assert capsys.readouterr().err == "slow: 7 s\n"


def test_warnings_of_other_threads_are_in_no_cell(unconfigure, capsys: pytest.CaptureFixture[str]) -> None:
    unconfigure()
    thread = threading.Thread(target=logger.error, args=("of a thread",))
    thread.start()
    thread.join()
    assert capsys.readouterr().err == ""


def test_programs_that_configure_logging_get_all_warnings(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    logger.warning("a warning")
    assert caplog.messages == ["a warning"]
    assert capsys.readouterr().err == ""
