"""The body of a cell as a function: what it returns and captures, and its line numbers."""

from __future__ import annotations

import inspect
import linecache
import traceback
from typing import Any

import pytest

from tfos_lab.errors import ConfigError, PayloadError
from tfos_lab.jupyter.cell.function import CellSyntaxError, make_map_fun
from tfos_lab.jupyter.cell.location import make_labeller, register_cell
from tfos_lab.payload import notebook_sources
from tfos_lab.payload.packing import pack, unpack


@pytest.fixture
def on_node(shell: Any) -> Any:
    """Turn a body into a function, pickle it as for a node, and call the copy."""

    def call(body: str, args: Any = None) -> Any:
        map_fun, args = unpack(pack(make_map_fun(shell, "", body), args))
        return map_fun(args, None)

    return call


# ---- what it returns ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("x = 2\nx * 3\n", 6),
        ("x = 2\nx * 3;\n", None),
        ("x = 2\n", None),
        ("return 7\n", 7),
        ("if args:\n    return 'early'\n'late'\n", "late"),
        ("'only a docstring'\n", "only a docstring"),
        ("x = 1; x\n", 1),
        ("x = 1  # no ; here\nx  # ;\n", 1),
        ("(args,\n ctx)\n", (None, None)),
        ("def f(n):\n    return n and n + f(n - 1)\nf(3)\n", 6),
        ("k = 2\n[k * i for i in range(3)]\n", [0, 2, 4]),
        ("k = 2\nclass A:\n    v = k\nA.v\n", 2),
        ("import math\nmath.floor(2.5)\n", 2),
        ("from __future__ import annotations\ndef f(a: Nowhere): ...\nf.__annotations__['a']\n", "Nowhere"),
        ("n = 0\ndef bump():\n    nonlocal n\n    n += 1\nbump()\nn\n", 1),
        ("global g\ng = 5\ndef f():\n    return g\nf()\n", 5),
    ],
)
def test_a_cell_returns_its_last_value_or_that_of_its_return(on_node: Any, body: str, value: Any) -> None:
    assert on_node(body) == value


def test_args_are_available(on_node: Any) -> None:
    assert on_node("args['x'] + 1", {"x": 1}) == 2


@pytest.mark.parametrize(
    ("body", "implicit"),
    [
        ("1 + 1", True),
        ("1 + 1;", False),
        ("return 1", False),
        ("if args:\n    return 1\n2", False),
        ("if args:\n    return\n2", True),
        ("def f():\n    return 1\nf()", True),
        ("x = 1", False),
    ],
)
def test_a_last_value_is_marked_as_implicit(shell: Any, body: str, implicit: bool) -> None:
    assert make_map_fun(shell, "", body).__tfos_implicit__ is implicit  # type: ignore[attr-defined]
    assert unpack(pack(make_map_fun(shell, "", body), None))[0].__tfos_implicit__ is implicit


def test_it_can_be_called_without_a_context(shell: Any) -> None:
    assert make_map_fun(shell, "", "return args, ctx")(1) == (1, None)


# ---- what it captures -----------------------------------------------------------------------------------------------


def test_names_that_helpers_use_are_captured_too(run_cell: Any, on_node: Any) -> None:
    run_cell("import math\nrate = 3\ndef scale(v):\n    return v * rate")
    run_cell("class Net:\n    def f(self):\n        return scale(2)")
    assert on_node("Net().f() + math.floor(rate)") == 9


def test_only_names_that_are_used_are_captured(shell: Any, run_cell: Any) -> None:
    run_cell("import threading\nlock = threading.Lock()\na = 1\nb = 2")
    map_fun = make_map_fun(shell, "", "a + 1")
    assert {name for name in map_fun.__globals__ if not name.startswith("_")} == {"a"}  # type: ignore[attr-defined]


def test_a_name_that_is_changed_starts_with_the_notebooks_value(run_cell: Any, on_node: Any, shell: Any) -> None:
    run_cell("x = 1\nitems = [0]")
    assert on_node("x = x + 1\nx") == 2
    assert on_node("x += 5\ndef f():\n    return x\nf()") == 6
    assert on_node("for i in range(3):\n    x = x + i\nx") == 4
    assert on_node("y = x\ndel x\ny") == 1
    assert on_node("if args:\n    x = 0\nx") == 1
    assert on_node("items.append(x)\nx = items\nx") == [0, 1]
    assert shell.user_ns["x"] == 1
    assert shell.user_ns["items"] == [0]


def test_assignments_never_change_the_notebook_even_in_its_own_process(run_cell: Any, shell: Any) -> None:
    run_cell("x = 1")
    assert make_map_fun(shell, "", "global x\nx = 2\nx")(None) == 2
    assert shell.user_ns["x"] == 1


def test_a_name_that_is_assigned_first_is_not_captured(run_cell: Any, on_node: Any) -> None:
    run_cell("import threading\nmodel = threading.Lock()")
    assert on_node("model = 3\nmodel") == 3
    assert on_node("for model in range(2):\n    pass\nmodel") == 1


def test_a_captured_name_that_cannot_be_pickled_is_refused_by_name(run_cell: Any, on_node: Any) -> None:
    run_cell("import threading\nmodel = threading.Lock()")
    with pytest.raises(PayloadError) as error:
        on_node("model = model.copy()\nmodel")
    assert error.value.name == "model"


def test_names_that_only_class_bodies_use_are_captured(run_cell: Any, on_node: Any) -> None:
    run_cell("width = 3\nclass Base: ...")
    body = "class A(Base):\n    units = width\n    width = width\n    class B:\n        deep = width\n"
    assert on_node(body + "A.units, A.width, A.B.deep") == (3, 3, 3)


def test_names_that_ipython_adds_are_not_captured(on_node: Any, tmp_path: Any) -> None:
    (tmp_path / "f").write_text("text")
    assert on_node(f"open({str(tmp_path / 'f')!r}).read()") == "text"
    with pytest.raises(NameError, match="get_ipython"):
        on_node("get_ipython()")


def test_an_undefined_name_is_an_error_of_the_node(on_node: Any) -> None:
    with pytest.raises(NameError, match="nowhere"):
        on_node("nowhere + 1")


# ---- where its lines are --------------------------------------------------------------------------------------------


def test_line_numbers_are_those_of_the_cell(shell: Any) -> None:
    map_fun = make_map_fun(shell, "cluster_size=2", "x = 1\n\ny = x / 0\n")
    with pytest.raises(ZeroDivisionError) as error:
        map_fun(None)
    frame = traceback.extract_tb(error.value.__traceback__)[-1]
    assert (frame.lineno, frame.line) == (4, "y = x / 0")
    assert linecache.getline(frame.filename, 1) == "%%tfos cluster_size=2\n"


@pytest.mark.parametrize(
    ("typed", "above"),
    [
        ("%%tfos\na = 1\n1 / 0", 1),
        ("%%tfos x=1\na = 1\n1 / 0\n\n", 1),
        ("\n\n%%tfos x=1\na = 1\n1 / 0\n", 3),
        ("%%other\n%%tfos x=1\na = 1\n1 / 0", 2),
    ],
)
def test_lines_above_the_body_are_counted(shell: Any, run_cell: Any, typed: str, above: int) -> None:
    seen = []
    shell.register_magic_function(lambda line, body: seen.append(register_cell(shell, line, body)), "cell", "tfos")
    shell.register_magic_function(lambda line, body: shell.run_cell(body), "cell", "other")
    run_cell(typed)
    assert seen[0].lines_before == above
    assert linecache.getline(seen[0].filename, above + 2) == "1 / 0\n"


def test_the_cell_has_the_file_name_of_the_notebook(shell: Any) -> None:
    labeller = make_labeller(shell)
    filename = register_cell(shell, "", "a = 1\n").filename
    assert labeller(filename) == f"Cell In[{shell.execution_count}]"
    assert labeller("/some/file.py") is None


def test_functions_of_the_cell_have_their_source_on_the_node(shell: Any) -> None:
    body = "def step(x):\n    return x + 1\nreturn step\n"
    data = pack(make_map_fun(shell, "", body), None)
    filename = register_cell(shell, "", body).filename
    linecache.cache.pop(filename)
    map_fun, _ = unpack(data)
    assert inspect.getsource(map_fun(None)) == "def step(x):\n    return x + 1\n"
    assert notebook_sources.label(filename) == f"Cell In[{shell.execution_count}]"


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["\n", "   \n\n", "# only a comment\n", "from __future__ import annotations\n"])
def test_an_empty_cell_is_refused_with_a_sentence(shell: Any, body: str) -> None:
    with pytest.raises(ConfigError, match="the cell is empty: write below %%tfos what each node is to do"):
        make_map_fun(shell, "", body)


@pytest.mark.parametrize(
    ("body", "line", "text"),
    [
        ("a = 1\n%matplotlib inline\n", 3, "%matplotlib inline"),
        ("!pip install x\n", 2, "!pip install x"),
        ("a = !ls\n", 2, "a = !ls"),
        ("%%time\na = 1\n", 2, "%%time"),
        ("import os\nos.path?\n", 3, "os.path?"),
        ("if args:\n    %time f()\n", 3, "%time f()"),
    ],
)
def test_magics_and_commands_are_refused_with_their_line(shell: Any, body: str, line: int, text: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_map_fun(shell, "", body)
    assert str(error.value).startswith(f"line {line}: `{text}` is for the notebook, and nodes run plain Python. ")
    assert "subprocess.run" in str(error.value)


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("a = 1\nb ==\n", 3, "invalid syntax"),
        ("a = 1\n  b = 2\n", 3, "unexpected indent"),
        ("a = 1\nbreak\n", 3, "'break' outside loop"),
        ("a = 1\nawait f()\n", 3, "'await' at the top of a %%tfos cell: nodes run a plain function; use asyncio.run"),
        ("async with a:\n    pass\n", 2, "'await' at the top"),
        ("yield 1\n", 2, "'yield' at the top of a %%tfos cell: a node returns one value; collect them in a list"),
        ("from math import *\n", 2, "'import *' in a %%tfos cell, whose body is a function"),
        ("nonlocal a\n", 2, "'nonlocal' at the top of a %%tfos cell: there is no function around it"),
        ("global args\n", 2, "'args' and 'ctx' are given to the cell, and cannot be global"),
        ("def f():\n    nonlocal nowhere\n", 3, "no binding for nonlocal 'nowhere' found"),
    ],
)
def test_invalid_python_is_refused_at_its_own_line(shell: Any, body: str, line: int, message: str) -> None:
    with pytest.raises(CellSyntaxError) as error:
        make_map_fun(shell, "", body)
    assert message in str(error.value)
    assert error.value.lineno == line
    assert error.value.filename == register_cell(shell, "", body).filename


def test_coroutines_and_generators_inside_functions_are_fine(on_node: Any) -> None:
    body = "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 3\ndef g():\n    yield 4\n"
    assert on_node(body + "asyncio.run(f()), list(g())") == (3, [4])
