"""The limit of open files: raised as far as the nodes need it, or told."""

from __future__ import annotations

import resource

import pytest

from tfos_lab.engine import open_files
from tfos_lab.engine.open_files import allow_files_for
from tfos_lab.errors import NotEnoughRoom


@pytest.fixture
def limits(monkeypatch):
    """Stand for the limits of this process: what is set, and how many files are open."""
    held = {"now": (1024, 20_000)}
    monkeypatch.setattr(open_files, "_open_files", lambda: 36)
    monkeypatch.setattr(resource, "getrlimit", lambda _which: held["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: held.update(now=limits))
    return held


def test_few_nodes_need_no_more_than_there_is(limits):
    allow_files_for(300)
    assert limits["now"] == (1024, 20_000)


def test_the_soft_limit_is_raised_as_far_as_the_nodes_need_it(limits):
    allow_files_for(4096)
    assert limits["now"] == (36 + 64 + 3 * 4096, 20_000)


def test_a_hard_limit_that_does_not_suffice_is_told(limits):
    limits["now"] = (1024, 4096)
    with pytest.raises(NotEnoughRoom) as caught:
        allow_files_for(4096)
    assert caught.value.fits == (4096 - 100) // 3
    assert "may open 4,096 in all and needs 12,388 (ulimit -Hn; in a container --ulimit nofile)" in str(caught.value)
    assert limits["now"] == (1024, 4096)


def test_what_was_always_allowed_is_not_refused(limits):
    limits["now"] = (64, 80)
    allow_files_for(4)
    assert limits["now"] == (80, 80)
