"""Parts of Keras that are executed when first used: until then nothing of them runs, and then they are as ever."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from tfos_lab.core import lazy_imports
from tfos_lab.core.lazy_imports import lazy_parts_of_keras

# A package whose part `lazy` is put off. It notes each time that it is executed, and fails while it is told to.
_FILES = {
    "__init__.py": "executions = []\nbroken = False\nfrom vast import lazy as lazy\n",
    "lazy/__init__.py": """
import time
import vast
vast.executions.append(__name__)
if vast.broken: raise ValueError("a library that it imports is broken")
from vast.lazy import inner
time.sleep(0.01)  # other threads look at it meanwhile
from vast.lazy.inner import Part as Part
""",
    "lazy/inner.py": "class Part: ...\n",
}


@pytest.fixture
def vast(tmp_path, monkeypatch):
    for name, text in _FILES.items():
        (tmp_path / "vast" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "vast" / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(lazy_imports, "_LAZY", {"vast.lazy", "vast.missing"})
    with lazy_parts_of_keras():
        yield importlib.import_module("vast")
    for name in [name for name in sys.modules if name.split(".")[0] == "vast"]:
        del sys.modules[name]


def test_it_is_executed_once_when_something_in_it_is_used_and_is_then_like_any_module(vast):
    inspect.stack()  # goes through all modules and looks at their files
    assert (vast.lazy.__name__, vast.lazy.__file__[-16:]) == ("vast.lazy", "lazy/__init__.py")
    assert vast.executions == []

    from vast.lazy import Part

    assert Part is vast.lazy.Part is vast.lazy.inner.Part is pickle.loads(pickle.dumps(Part))
    assert not hasattr(vast.lazy, "absent")
    assert not {"__getattr__", "__dir__"} & set(vars(vast.lazy))
    assert vast.lazy.__spec__.loader is vast.lazy.__loader__
    assert inspect.getsource(vast.lazy) == _FILES["lazy/__init__.py"]
    assert vast.executions == ["vast.lazy"]


def test_its_names_can_be_listed_and_all_of_them_imported(vast):
    names: dict[str, object] = {}
    exec("from vast.lazy import *", names)
    assert {"Part", "inner"} <= set(names)
    assert {"Part", "inner"} <= set(dir(vast.lazy))


def test_a_module_in_it_can_be_imported_first(vast):
    inner = importlib.import_module("vast.lazy.inner")
    assert vast.lazy.Part is inner.Part


def test_threads_that_use_it_at_once_all_find_it_whole(vast):
    barrier = Barrier(8)

    def use(number: int) -> object:
        barrier.wait()
        return vast.lazy.Part if number % 2 else importlib.import_module("vast.lazy.inner").Part

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(use, range(8))) == {vast.lazy.Part}
    assert vast.executions == ["vast.lazy"]


def test_a_forked_process_executes_it_for_itself(vast):
    child = os.fork()
    if child == 0:
        os._exit(0 if vast.lazy.Part and vast.executions == ["vast.lazy"] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert vast.executions == []


def test_one_that_fails_says_why_each_time_and_works_once_that_is_repaired(vast):
    vast.broken = True
    for _ in range(2):
        with pytest.raises(ValueError, match="a library that it imports is broken"):
            vast.lazy.Part  # noqa: B018 - the look at it is what fails
    vast.broken = False
    assert vast.lazy.Part


def test_what_is_not_there_is_not_found_and_what_has_another_name_is_not_put_off(vast):
    assert importlib.util.find_spec("vast.missing") is None
    importlib.import_module("vast.lazy.inner")
    assert "Part" in vars(sys.modules["vast.lazy.inner"])


def test_imports_afterwards_are_as_ever(vast):
    before = list(sys.meta_path)
    with lazy_parts_of_keras():
        assert sys.meta_path != before
    assert sys.meta_path == before
