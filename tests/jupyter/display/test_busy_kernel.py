"""A kernel that runs a cell announces that it is busy, whatever else it answers meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tfos_lab.jupyter.display.busy_kernel import keep_busy


def request(msg_type: str) -> dict[str, Any]:
    return {"header": {"msg_id": f"id of {msg_type}", "msg_type": msg_type}, "content": {}}


class AnnouncingKernel:
    """Announces as ipykernel does; ``announced`` has the status, and the type and id of its cause."""

    def __init__(self) -> None:
        self.announced: list[tuple[str, str, str]] = []
        self._parents = {"shell": request("execute_request"), "control": request("create_subshell_request")}

    def get_parent(self, channel: str) -> dict[str, Any]:
        on_main = threading.current_thread() is threading.main_thread()
        return self._parents[channel] if on_main or channel == "control" else request("comm_msg")

    def _publish_status(self, status: str, channel: str, parent: Any = None) -> None:
        header = (parent or self.get_parent(channel))["header"]
        self.announced.append((status, header["msg_type"], header["msg_id"]))

    def answer_elsewhere(self, channel: str) -> None:
        """Answer a message as a subshell (``shell``) or the control thread does."""

        def answer() -> None:
            self._publish_status("busy", channel)
            self._publish_status("idle", channel)

        in_thread(answer)

    def run_cell(self, cell: Callable[[], None]) -> None:
        self._publish_status("busy", "shell")
        cell()
        self._publish_status("idle", "shell")

    def tracked(self) -> list[str]:
        """The announcements that count for a server, which ignores some types of requests."""
        return [status for status, msg_type, _ in self.announced if msg_type != "comm_info_request"]


def in_thread(target: Callable[[], None]) -> None:
    thread = threading.Thread(target=target)
    thread.start()
    thread.join()


@pytest.mark.parametrize(("channel", "cause"), [("shell", "comm_msg"), ("control", "create_subshell_request")])
def test_other_requests_do_not_make_a_kernel_idle_that_runs_a_cell(channel: str, cause: str) -> None:
    kernel = AnnouncingKernel()
    keep_busy(kernel)
    kernel.answer_elsewhere(channel)
    assert set(kernel.tracked()) == {"busy"}
    assert ("idle", "comm_info_request", f"id of {cause}") in kernel.announced, "the sender learns that it is answered"
    assert kernel.announced[-1] == ("busy", "execute_request", "id of execute_request"), (
        "for servers that count every announcement"
    )


def test_after_the_cell_idle_is_idle() -> None:
    kernel = AnnouncingKernel()
    keep_busy(kernel)
    kernel._publish_status("idle", "shell")
    kernel.answer_elsewhere("shell")
    assert kernel.announced[-1] == ("idle", "comm_msg", "id of comm_msg")


def test_the_next_cell_is_busy_as_long_as_it_runs() -> None:
    kernel = AnnouncingKernel()
    keep_busy(kernel)
    kernel._publish_status("idle", "shell")
    kernel.run_cell(lambda: kernel.answer_elsewhere("shell"))
    assert kernel.tracked() == ["idle", "busy", "busy", "idle"]


def test_busy_is_announced_again_for_pages_that_load_later() -> None:
    kernel = AnnouncingKernel()
    busy = keep_busy(kernel)
    assert busy is not None
    in_thread(busy.repeat)
    assert kernel.tracked() == ["busy"]
    kernel._publish_status("idle", "shell")
    in_thread(busy.repeat)
    assert kernel.tracked() == ["busy", "idle"]


def test_a_kernel_is_corrected_once() -> None:
    kernel = AnnouncingKernel()
    assert keep_busy(kernel) is keep_busy(kernel)
    kernel.answer_elsewhere("shell")
    assert len(kernel.announced) == 3


def test_a_kernel_that_announces_nothing_is_not_changed() -> None:
    assert keep_busy(None) is None


def test_the_ignored_type_of_request_is_one_that_the_server_ignores() -> None:
    from jupyter_server.services.kernels.kernelmanager import MappingKernelManager

    assert "comm_info_request" in MappingKernelManager.untracked_message_types.default()
