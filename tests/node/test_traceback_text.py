"""How an exception on a node is shown."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

from tfos_lab.node import traceback_text
from tfos_lab.node.traceback_text import format_remote
from tfos_lab.payload import notebook_sources
from tfos_lab.payload.notebook_sources import Source

if TYPE_CHECKING:
    import pytest


def run_cell(source: str, number: int = 5, **names: Any) -> BaseException:
    """Run source as the body of a cell on a node, and return what it raises."""
    filename = f"/tmp/ipykernel_1/{abs(hash(source))}.py"
    notebook_sources.register([Source(filename, f"Cell In[{number}]", source)])
    space: dict[str, Any] = {"__name__": "__main__", **names}
    exec(compile(source, filename, "exec"), space)
    map_fun = space["map_fun"]
    map_fun.__code__ = map_fun.__code__.replace(co_name="<module>")  # as the body of a cell has it
    try:
        map_fun(None, None)
    except BaseException as error:  # noqa: BLE001 - this is what is asked for
        return error
    raise AssertionError("nothing was raised")


def test_the_cells_own_lines_are_shown_with_the_cells_name() -> None:
    error = run_cell("\n\ndef map_fun(args, ctx):\n    x = 1\n    return x / 0\n")
    name, message, text = format_remote(error)
    assert (name, message) == ("ZeroDivisionError", "division by zero")
    assert "  Cell In[5], line 5\n    return x / 0\n" in text
    assert text.endswith("ZeroDivisionError: division by zero")
    assert "ipykernel" not in text


def test_functions_of_the_cell_are_named() -> None:
    source = "def map_fun(args, ctx):\n    def step():\n        raise KeyError('k')\n    step()\n"
    _, _, text = format_remote(run_cell(source))
    assert "  Cell In[5], line 4\n    step()\n  Cell In[5], line 3, in step\n    raise KeyError('k')\n" in text


def test_frames_of_tfos_lab_are_left_out() -> None:
    def map_fun(args: Any, ctx: Any) -> None:
        notebook_sources.label(3)  # type: ignore[arg-type]

    try:
        map_fun(None, None)
    except TypeError as error:
        _, _, text = format_remote(error)
    assert "sources.label(3)" in text
    assert "tfos_lab/payload/notebook_sources.py" not in text


def test_an_error_of_tfos_lab_alone_is_shown_whole() -> None:
    try:
        notebook_sources.label(3)  # type: ignore[arg-type]
    except TypeError as error:
        error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
        _, _, text = format_remote(error)
    assert "tfos_lab/payload/notebook_sources.py" in text


def test_chained_exceptions_are_kept() -> None:
    template = (
        "def map_fun(args, ctx):\n    try:\n        {}['a']\n    except KeyError as e:\n        raise OSError('b')"
    )
    caused, implied, silent = (format_remote(run_cell(template + end))[2] for end in (" from e", "", " from None"))
    assert re.search(r"KeyError: 'a'\n+The above exception was the direct cause .*OSError: b$", caused, re.DOTALL)
    assert "During handling of the above exception" in implied
    assert "KeyError: " not in silent


def test_groups_of_exceptions_are_shown_one_by_one() -> None:
    source = "def map_fun(args, ctx):\n    raise ExceptionGroup('both', [ValueError('a'), OSError('b')])\n"
    _, _, text = format_remote(run_cell(source))
    assert "--- exception 1 of the group ---\n  ValueError: a" in text
    assert "--- exception 2 of the group ---\n  OSError: b" in text


def test_long_runs_of_frames_inside_libraries_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    library = (
        "def f(n):\n    if n == 0:\n        raise ValueError('deep')\n    return g(n - 1)\ndef g(n):\n    return f(n)\n"
    )
    space: dict[str, Any] = {}
    exec(compile(library, "/x/site-packages/keras/deep.py", "exec"), space)
    _, _, text = format_remote(run_cell("def map_fun(args, ctx):\n    f(9)\n", f=space["f"]))
    assert text.count("site-packages/keras/deep.py") == 3
    assert "  … 16 frames in keras …" in text


def test_short_runs_of_frames_inside_libraries_are_shown() -> None:
    error = run_cell("import json\ndef map_fun(args, ctx):\n    json.loads('{')\n")
    assert isinstance(error, json.JSONDecodeError)
    assert "decoder.py" in format_remote(error)[2]
    assert "…" not in format_remote(error)[2]


def test_endless_recursion_is_counted_not_listed() -> None:
    _, _, text = format_remote(run_cell("def map_fun(args, ctx):\n    return map_fun(args, ctx)\n"))
    assert re.search(r"\[repeated \d+ more times\]", text)
    assert len(text.splitlines()) < 10


def test_an_error_whose_message_fails_is_still_shown() -> None:
    source = (
        "class Mute(Exception):\n    def __str__(self):\n        raise KeyError\n"
        "def map_fun(args, ctx):\n    raise Mute\n"
    )
    name, message, text = format_remote(run_cell(source))
    assert name == "Mute"
    assert message == "<the message could not be made: KeyError>"
    assert "raise Mute" in text


def test_file_names_of_cells_in_messages_become_their_labels() -> None:
    source = "def map_fun(args, ctx):\n    raise RuntimeError(f'in user code:\\n  File \"{where()}\", line 2')\n"
    error = run_cell(source, number=8, where=lambda: sys._getframe(1).f_code.co_filename)
    assert format_remote(error)[1] == "in user code:\n  Cell In[8], line 2"


def test_long_messages_and_tracebacks_are_shortened() -> None:
    source = "def map_fun(args, ctx):\n    raise ValueError(args or 'line\\n' * 5000 + 'x' * 1_000_000)\n"
    _, message, text = format_remote(run_cell(source))
    assert len(message) < traceback_text.MAX_MESSAGE + 100
    assert len(text.splitlines()) <= traceback_text.MAX_LINES
    assert len(text) <= traceback_text.MAX_CHARACTERS
    assert "lines left out" in text
    assert text.startswith("Traceback (most recent call last):")
