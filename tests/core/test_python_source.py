"""Python source is parsed by several threads at once."""

from __future__ import annotations

import ast
from concurrent.futures import ThreadPoolExecutor

import pytest

from tfos_lab.core import python_source


def test_several_threads_parse_at_once():
    source = "\n".join(f"def f{n}(x):\n    return [(y + {n}) * x for y in range(x) if y > {n}]" for n in range(60))
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(lambda _: python_source.parse(source, "many.py"), range(40)))
    assert {len(tree.body) for tree in trees} == {60}


def test_a_tree_that_another_thread_has_spoilt_is_made_again(monkeypatch):
    answers = [SystemError("AST constructor recursion depth mismatch (before=39, after=32)"), ast.Module([], [])]

    def answer(*_):
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(python_source.ast, "parse", answer)
    assert python_source.parse("", "x.py").body == []


def test_what_is_no_python_is_said():
    with pytest.raises(SyntaxError):
        python_source.parse("def", "x.py")
