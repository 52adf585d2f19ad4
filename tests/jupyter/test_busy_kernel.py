"""A kernel that runs a cell says that it is busy, whatever else it answers meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tfos_lab.jupyter.busy_kernel import keep_busy


class TalkingKernel:
    """Announces as ipykernel does; ``said`` is what its front ends have heard."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Any]] = []
        self._parents: dict[str, Any] = {"shell": "the cell"}

    def get_parent(self, channel: str) -> Any:
        on_main = threading.current_thread() is threading.main_thread()
        return self._parents[channel] if on_main else f"a message on {channel}"

    def _publish_status(self, status: str, channel: str, parent: Any = None) -> None:
        self.said.append((status, parent or self.get_parent(channel)))

    def answer_elsewhere(self, channel: str) -> None:
        """Answer a message as a subshell (``shell``) or the control thread does."""

        def answer() -> None:
            self._publish_status("busy", channel)
            self._publish_status("idle", channel)

        in_thread(answer)

    def run_cell(self, name: str, cell: Callable[[], None]) -> None:
        self._parents["shell"] = name
        self._publish_status("busy", "shell")
        cell()
        self._publish_status("idle", "shell")


def in_thread(target: Callable[[], None]) -> None:
    thread = threading.Thread(target=target)
    thread.start()
    thread.join()


@pytest.mark.parametrize("channel", ["shell", "control"])
def test_the_cell_has_the_last_word_while_it_runs(channel: str) -> None:
    kernel = TalkingKernel()
    keep_busy(kernel)
    kernel._parents["control"] = "not asked"
    kernel.answer_elsewhere(channel)
    assert kernel.said[-2:] == [("idle", f"a message on {channel}"), ("busy", "the cell")]


def test_after_the_cell_idle_is_idle() -> None:
    kernel = TalkingKernel()
    keep_busy(kernel)
    kernel._publish_status("idle", "shell")
    kernel.answer_elsewhere("shell")
    assert kernel.said[-1] == ("idle", "a message on shell")


def test_the_next_cell_is_busy_with_itself() -> None:
    kernel = TalkingKernel()
    keep_busy(kernel)
    kernel._publish_status("idle", "shell")
    kernel.run_cell("the next cell", lambda: kernel.answer_elsewhere("shell"))
    assert [status for status, parent in kernel.said if parent == "the next cell"] == ["busy", "busy", "idle"]
    assert kernel.said[-1][0] == "idle"


def test_it_is_said_again_for_pages_that_come_late() -> None:
    kernel = TalkingKernel()
    busy = keep_busy(kernel)
    assert busy is not None
    in_thread(busy.repeat)
    assert kernel.said == [("busy", "the cell")]
    kernel._publish_status("idle", "shell")
    in_thread(busy.repeat)
    assert kernel.said[-1] == ("idle", "the cell")


def test_a_kernel_is_put_right_once() -> None:
    kernel = TalkingKernel()
    assert keep_busy(kernel) is keep_busy(kernel)
    kernel.answer_elsewhere("shell")
    assert [status for status, _ in kernel.said] == ["busy", "idle", "busy"]


def test_a_kernel_that_announces_nothing_is_left_alone() -> None:
    assert keep_busy(None) is None
