"""Which names a cell reads before it assigns them, along every path of control."""

from __future__ import annotations

import ast
import textwrap

import pytest

from tfos_lab.jupyter.cell.free_names import early_reads


def reads(source: str) -> tuple[set[str], set[str]]:
    certain, possible = early_reads(ast.parse(textwrap.dedent(source)).body)
    return set(certain) & {"x", "y"}, set(possible) & {"x", "y"}


@pytest.mark.parametrize(
    "source",
    [
        "x = x + 1",
        "x += 1",
        "del x",
        "x.append(1)\nx = 2",
        "for i in x:\n    x = i",
        "while x:\n    x = 0",
        "if x:\n    pass\nx = 1",
        "with x as y:\n    x = 1",
        "x: int = x",
        "y = [x for _ in z]\nx = 1",
        "y = [i for i in x]\nx = 1",
        "print(f'{x}')\nx = 1",
        "class A:\n    a = x\nx = 1",
        "class A(x):\n    pass\nx = 1",
        "def f(a=x):\n    pass\nx = 1",
        "f = lambda a=x: a\nx = 1",
        "try:\n    x = x\nexcept E:\n    pass",
        "match x:\n    case 1:\n        x = 2",
        "x = 1\ndel x\nprint(x)",
        "@x\ndef f():\n    pass\nx = 1",
        "a[x] = 1\nx = 2",
        "if a:\n    print(x)\nelse:\n    x = 1",
    ],
)
def test_a_name_that_is_read_first_is_certainly_read(source: str) -> None:
    assert "x" in reads(source)[0]


@pytest.mark.parametrize(
    "source",
    [
        "x = 1\nprint(x)",
        "import x\nx.y",
        "import x.z as x\nprint(x)",
        "from z import x\nprint(x)",
        "def x():\n    return x\nx()",
        "class x:\n    pass\nx()",
        "for x in z:\n    print(x)",
        "with z as x:\n    print(x)",
        "try:\n    pass\nexcept E as x:\n    print(x)",
        "if (x := 1):\n    print(x)",
        "if a:\n    x = 1\nelse:\n    x = 2\nprint(x)",
        "if a:\n    x = 1\nelse:\n    raise E\nprint(x)",
        "if a:\n    return\nelse:\n    x = 1\nprint(x)",
        "try:\n    x = 1\nfinally:\n    pass\nprint(x)",
        "try:\n    pass\nfinally:\n    x = 1\nprint(x)",
        "try:\n    x = f()\nexcept E:\n    x = 1\nprint(x)",
        "try:\n    x = f()\nexcept E:\n    raise\nprint(x)",
        "while True:\n    x = f()\n    if x:\n        break\nprint(x)",
        "print([x for x in z])",
        "print({x: y2 for x in z for y2 in x})",
        "f = lambda x: x\nx = 1",
        "def f(x):\n    return x\nx = 1",
        "def f():\n    return x\nx = 1\nf()",
        "def f():\n    x = 1\n    return x\nx = 2",
        "match z:\n    case [x, *_]:\n        print(x)\n    case _:\n        x = 1\nprint(x)",
        "match z:\n    case {'k': v, **x}:\n        print(x)",
        "x: int = 1\nprint(x)",
        "return 1\nprint(x)",
        "(x, y), z = f()\nprint(x, y)",
        "class A:\n    x = 1\n    y = x",
    ],
)
def test_a_name_that_is_always_assigned_first_is_not_read_from_outside(source: str) -> None:
    certain, possible = reads(source)
    assert "x" not in certain | possible


@pytest.mark.parametrize(
    "source",
    [
        "if a:\n    x = 1\nprint(x)",
        "for i in z:\n    x = i\nprint(x)",
        "for x in z:\n    pass\nprint(x)",
        "while a:\n    x = 1\nprint(x)",
        "try:\n    x = f()\nexcept E:\n    print(x)",
        "try:\n    x = f()\nfinally:\n    print(x)",
        "try:\n    x = f()\nexcept E:\n    pass\nprint(x)",
        "a and (x := 1)\nprint(x)",
        "b = (x := 1) if a else 2\nprint(x)",
        "match z:\n    case 1:\n        x = 1\nprint(x)",
        "[x := i for i in z]\nprint(x)",
        "def f():\n    return x\nf()\nif a:\n    x = 1",
        "def f():\n    nonlocal x\n    x += 1\nif a:\n    x = 1",
        "def f():\n    class A:\n        b = x\n    return A\nif a:\n    x = 1",
        "while True:\n    if a:\n        break\n    x = 1\nprint(x)",
    ],
)
def test_a_name_that_is_assigned_on_some_paths_only_is_possibly_read(source: str) -> None:
    certain, possible = reads(source)
    assert "x" in possible
    assert "x" not in certain
