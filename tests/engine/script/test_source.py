"""What of a script's folder travels, and which scripts are refused before anything starts."""

from __future__ import annotations

import pytest

from tfos_lab.engine.script import source
from tfos_lab.engine.script.source import read_script
from tfos_lab.errors import ConfigError


@pytest.fixture
def folder(tmp_path):
    """A function that writes files."""

    def write(**files):
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/', 1)}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_modules_that_a_script_imports_from_its_folder_travel_with_those_that_they_import(folder):
    home = folder(
        train="import os, helper\nfrom pkg.deep import x\ndef late():\n    import rarely\n",
        helper="import json\nfrom other import y\nimport train\n",
        other="",
        rarely="",
        unused="",
        pkg____init__="",
        pkg__deep="from . import near\nimport below\n",
        pkg__near="",
        below="",
    )
    (home / "pkg" / "words.txt").write_text("hello")
    (home / "pkg" / "__pycache__").mkdir()
    (home / "pkg" / "__pycache__" / "deep.pyc").write_text("")
    (home / "data").mkdir()
    found = read_script(home / "train.py")
    assert set(found.files) == {
        *("train.py", "helper.py", "other.py", "rarely.py", "below.py"),
        *("pkg/__init__.py", "pkg/deep.py", "pkg/near.py", "pkg/words.txt"),
    }
    assert found.files["pkg/words.txt"] == b"hello"


def test_other_files_travel_if_they_are_named(folder):
    home = folder(train="")
    (home / "config").mkdir()
    (home / "config" / "a.json").write_text("{}")
    (home / "words.txt").write_text("")
    assert set(read_script(home / "train.py", files=["config", "*.txt"]).files) == {
        *("train.py", "config/a.json", "words.txt")
    }
    for pattern, why in (("*.yaml", "matches"), ("../x", "travels with the script"), ("/etc/hosts", "travels")):
        with pytest.raises(ConfigError, match=why):
            read_script(home / "train.py", files=[pattern])


def test_a_function_may_be_defined_assigned_or_imported(folder):
    home = folder(train="from helper import f\nif True:\n    def g(args): ...\nh = g\n", helper="def f(): ...")
    for name in "fgh":
        read_script(home / "train.py", function=name)
    read_script(folder(star="from helper import *\n") / "star.py", function="f")


@pytest.mark.parametrize(
    ("text", "function", "problem"),
    [
        ("x = 1\ndef f(:\n", None, "train.py, line 2: def f(:: invalid syntax"),
        ("def main(args, ctx): ...\n", "mian", "has no function 'mian'; did you mean 'main'?"),
        ("def main(args, ctx): ...\n", "train", "has no function 'train'; it has main"),
        ("x = 1\n", "train", "it has none; leave function out to run the whole file"),
        ("import helper\n", None, "helper.py, line 1"),
        ("\0", None, "null bytes"),
    ],
)
def test_a_script_that_cannot_work_is_refused(folder, text, function, problem):
    home = folder(train=text, helper="1 +\n")
    with pytest.raises(ConfigError) as caught:
        read_script(home / "train.py", function=function)
    assert problem in str(caught.value)
    assert str(home) in str(caught.value)


def test_a_script_that_is_not_there_is_told_with_the_nearest(folder):
    home = folder(train="")
    with pytest.raises(ConfigError, match=r"there is no script .*trian.py; did you mean train.py\?"):
        read_script(home / "trian.py")
    with pytest.raises(ConfigError, match="give the path of a Python file"):
        read_script(home / "nowhere" / "x.py")
    with pytest.raises(ConfigError, match="is no file"):
        read_script(home)
    with pytest.raises(ConfigError, match="path is a int"):
        read_script(7)


def test_files_that_are_too_large_are_refused_by_name(folder, monkeypatch):
    monkeypatch.setattr(source, "LIMIT_BYTES", 1000)
    home = folder(train="import weights", weights="#" * 2000)
    with pytest.raises(ConfigError, match=r"most of it weights\.py: give rows with data="):
        read_script(home / "train.py")
