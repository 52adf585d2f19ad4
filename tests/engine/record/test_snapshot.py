"""What is known of a function's source."""

from __future__ import annotations

import functools
import linecache

from tfos_lab.engine.record.snapshot import code_of
from tfos_lab.payload import notebook_sources


def sample(args):
    return args


def test_a_function_is_recorded_with_its_source():
    code = code_of(sample)
    assert (code.name, code.source) == ("sample", "def sample(args):\n    return args\n")
    assert code.file == __file__
    assert code_of(functools.partial(sample, 1)) == code


def test_a_cell_is_recorded_whole_under_its_name(monkeypatch):
    text = "%%tfos cluster_size=2\nx = 1\nreturn x\n"
    filename = "<ipython-input-5-0123456789ab>"
    monkeypatch.setitem(linecache.cache, filename, (len(text), None, text.splitlines(keepends=True), filename))
    space: dict[str, object] = {}
    exec(compile("def cell(): pass", filename, "exec"), space)
    cell = space["cell"]
    cell.__code__ = cell.__code__.replace(co_name="<module>")
    code = code_of(cell)
    assert (code.name, code.file, code.source) == ("cell", "Cell In[5]", text)
    assert notebook_sources.label(filename) == "Cell In[5]"


def test_what_has_no_source_is_left_out():
    assert code_of(print) is None
    assert code_of(functools.partial(print, 1)) is None
    assert code_of(eval("lambda: 1")) is None
