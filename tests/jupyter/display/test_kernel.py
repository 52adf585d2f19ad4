"""Whether somebody watches the cells of this kernel."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tfos_lab.jupyter.display import kernel


def kernel_with(monkeypatch: pytest.MonkeyPatch, content: object) -> None:
    made = SimpleNamespace(get_parent=lambda: content)
    monkeypatch.setattr(kernel, "current_kernel", lambda: made)
    monkeypatch.delenv(kernel.NONINTERACTIVE, raising=False)


def test_a_script_has_no_kernel() -> None:
    assert kernel.current_kernel() is None
    assert not kernel.has_front_end()
    assert kernel.kernel_id() == ""


def test_a_front_end_that_takes_input_is_used_by_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_with(monkeypatch, {"content": {"allow_stdin": True}})
    assert kernel.has_front_end()
    kernel_with(monkeypatch, {"content": {"allow_stdin": False}})
    assert not kernel.has_front_end()


@pytest.mark.parametrize("parent", [None, {}, {"content": {}}])
def test_without_information_a_person_is_assumed(monkeypatch: pytest.MonkeyPatch, parent: object) -> None:
    kernel_with(monkeypatch, parent)
    assert kernel.has_front_end()


@pytest.mark.parametrize(("value", "expected"), [("1", False), ("yes", False), ("0", True), ("", True)])
def test_the_environment_decides_first(monkeypatch: pytest.MonkeyPatch, value: str, expected: bool) -> None:
    kernel_with(monkeypatch, {"content": {"allow_stdin": True}})
    monkeypatch.setenv(kernel.NONINTERACTIVE, value)
    assert kernel.has_front_end() is expected
