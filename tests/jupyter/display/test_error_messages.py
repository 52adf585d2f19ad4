"""How a notebook shows our errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tfos_lab.errors import ClusterInterrupted, ConfigError, NodeFailed, NotEnoughSlots
from tfos_lab.jupyter.display.error_messages import render_error

if TYPE_CHECKING:
    import pytest


def text_of(error: BaseException) -> str:
    return re.sub(r"\x1b\[\d+m", "", "\n".join(render_error(error)))


def test_a_failed_node_is_shown_with_its_traceback_and_the_nodes_that_failed_too() -> None:
    error = NodeFailed(
        node="worker:0",
        kind="ValueError",
        message="no",
        traceback="Traceback (most recent call last):\n  Cell In[5], line 3\n    f()\nValueError: no\n",
        also=["worker:1", "worker:2"],
        consequences={"chief:0": "UnavailableError: gone", "ps:0": "stopped"},
    )
    assert text_of(error) == (
        "NodeFailed: worker:0, worker:1 and worker:2 failed\n\n"
        "Traceback (most recent call last):\n  Cell In[5], line 3\n    f()\nValueError: no\n\n"
        "chief:0 and ps:0 ended because worker:0 was gone."
    )


def test_a_node_that_ended_without_an_error_is_shown_with_its_last_lines() -> None:
    error = NodeFailed(node="worker:0", kind="Exited", message="killed by SIGKILL", log_tail="one\ntwo\n")
    assert text_of(error) == (
        "NodeFailed: worker:0 failed: Exited: killed by SIGKILL\n\nlast lines of worker:0:\n  one\n  two"
    )


def test_an_error_that_the_user_can_fix_is_one_sentence() -> None:
    assert text_of(NotEnoughSlots(wanted=4, free=2, total=2)).startswith(
        "NotEnoughSlots: cluster_size=4, but Spark has 2"
    )
    assert text_of(ConfigError(["one"])) == "ConfigError: one"
    assert text_of(ConfigError(["one", "two"])) == "ConfigError: 2 problems\n  • one\n  • two"
    assert text_of(ClusterInterrupted("mnist")) == "KeyboardInterrupt: interrupted: the nodes of 'mnist' are stopped"


def test_the_shell_shows_the_error_and_the_cell_fails(magics: Any, capsys: pytest.CaptureFixture[str]) -> None:
    result = magics.run_cell("%%tfos cluster_sze=3\n1")
    assert not result.success
    shown = re.sub(r"\x1b\[\d+m", "", capsys.readouterr().out)
    assert shown == "ConfigError: unknown option 'cluster_sze'; did you mean cluster_size?\n"


def test_an_error_in_an_ordinary_cell_shows_its_line(magics: Any, capsys: pytest.CaptureFixture[str]) -> None:
    magics.run_cell("from tfos_lab import ClusterConfig\ndef make():\n    ClusterConfig(cluster_size=0)\nmake()")
    shown = capsys.readouterr().out
    assert "cluster_size=0: at least one node is needed" in shown
    assert re.search(r"  Cell In\[\d+\], line 4\n    make\(\)\n  Cell In\[\d+\], line 3, in make\n", shown)
    assert "config.py" not in shown


def test_syntax_errors_look_like_ipythons_own(magics: Any, capsys: pytest.CaptureFixture[str]) -> None:
    result = magics.run_cell("%%tfos\na = 1\nb ==\n")
    assert isinstance(result.error_in_exec, SyntaxError)
    shown = re.sub(r"\x1b\[[\d;]+m", "", capsys.readouterr().out)
    assert re.search(r"Cell In\[\d+\], line 3\n    b ==\n +\^\nSyntaxError: invalid syntax", shown)
    assert "magics.py" not in shown


def test_other_errors_look_as_usual(magics: Any, capsys: pytest.CaptureFixture[str]) -> None:
    magics.run_cell("1 / 0")
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_an_existing_handler_still_works(magics: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from tfos_lab.jupyter.display import error_messages

    before = magics.custom_exceptions, magics.CustomTB
    try:
        magics.set_custom_exc((ZeroDivisionError,), lambda *_args, **_options: ["theirs"])
        error_messages.install(magics)
        magics.run_cell("1 / 0")
        assert "ZeroDivisionError" not in capsys.readouterr().out
    finally:
        magics.custom_exceptions, magics.CustomTB = before
