"""Warnings of ours: in the cell that gives them, never in another."""

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
    """Make logging as a notebook has it; pytest has configured it."""
    return lambda: monkeypatch.setattr(logging.getLogger(), "handlers", [])


def test_the_main_thread_s_warnings_are_shown_once(unconfigure, capsys: pytest.CaptureFixture[str]) -> None:
    unconfigure()
    logger.warning("slow: %d s", 7)
    logger.info("nobody asked")
    assert capsys.readouterr().err == "slow: 7 s\n"


def test_other_threads_write_into_no_cell(unconfigure, capsys: pytest.CaptureFixture[str]) -> None:
    unconfigure()
    thread = threading.Thread(target=logger.error, args=("of a thread",))
    thread.start()
    thread.join()
    assert capsys.readouterr().err == ""


def test_who_configures_logging_gets_it_as_ever(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    logger.warning("heard")
    assert caplog.messages == ["heard"]
    assert capsys.readouterr().err == ""
