"""Turns the body of a ``%%tfos`` cell into ``map_fun(args, ctx)``, and knows where its lines are.

``return`` works at the top level, and the value of a last expression is returned. Names of the notebook that the body
uses are captured by value: the function has its own globals, which hold only the names that it refers to, so that an
assignment never changes the notebook (with ``local=inline``, which runs in the kernel itself, the values are the
notebook's own objects).

To IPython a ``%%tfos`` cell is one line, a call of the magic. Here its text as typed is registered under the file name
that tracebacks, breakpoints and ``%debug`` use, so that line 1 is the ``%%tfos`` line.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import dis
import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from IPython.core.displayhook import DisplayHook

from tfos_lab.core import sources
from tfos_lab.core.payload import global_names
from tfos_lab.errors import ConfigError
from tfos_lab.notebook.cell.free_names import capture, own_nodes

_NAME = "map_fun"
_PARAMETERS = ("args", "ctx")


class CellSyntaxError(SyntaxError):
    """The body of a ``%%tfos`` cell is not valid in a function; shown as IPython shows its own syntax errors."""


CellSyntaxError.__name__ = "SyntaxError"  # as users know it


def make_map_fun(shell: Any, line: str, body: str) -> types.FunctionType:
    """Return the body of the cell that runs now as a function, which captures names of the shell.

    Raises a `CellSyntaxError` at the cell's own line numbers, and a `ConfigError` if the body is empty, or contains
    what only notebooks understand (``%magic``, ``!command``).
    """
    cell = register_cell(shell, line, body)
    statements, flags = parse_body(shell, cell)
    _refuse_invalid_in_function(statements, cell)
    implicit = _return_last_value(statements, body)
    code, defaults, space = _compile(statements, cell, flags, visible_names(shell))
    # Users see the cell, not a function: tracebacks name no function, and show the lines around.
    map_fun = types.FunctionType(code.replace(co_name="<module>", co_qualname="<module>"), space, _NAME, (None,))
    map_fun.__kwdefaults__ = defaults or None
    # If the last value cannot be sent, its text is.
    map_fun.__dict__["__tfos_implicit__"] = implicit
    return map_fun


# ---- reading --------------------------------------------------------------------------------------------------------


def parse_body(shell: Any, cell: CellText) -> tuple[list[ast.stmt], int]:
    """Return the body's statements without ``from __future__`` imports, and the compiler's flags."""
    flags = shell.compile.flags
    try:
        tree = compile(cell.padded, cell.filename, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError) as error:
        _refuse_magics(shell, cell)
        raise as_cell_error(error, cell) from None
    statements = tree.body
    while statements and isinstance(statements[0], ast.ImportFrom) and statements[0].module == "__future__":
        for alias in statements.pop(0).names:
            feature = getattr(__future__, alias.name, None)
            flags |= feature.compiler_flag if feature else 0
    if not statements:
        raise ConfigError(["the cell is empty: write below %%tfos what each node is to do"])
    return statements, flags


def _refuse_magics(shell: Any, cell: CellText) -> None:
    """Raise `ConfigError` if the body is invalid because of magics or shell commands."""
    try:
        tree = ast.parse(shell.transform_cell(cell.body))
    except (SyntaxError, ValueError):
        return
    lines = cell.body.splitlines()
    problems = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Name) and called.id == "get_ipython":
                text = lines[node.lineno - 1].strip() if node.lineno <= len(lines) else node.attr
                problems.append(
                    f"line {node.lineno + cell.lines_before}: `{text}` is for the notebook, and nodes run plain "
                    "Python. Put it into a cell of its own; for shell commands use subprocess.run([...])"
                )
    if problems:
        raise ConfigError(problems)


def as_cell_error(error: Exception, cell: CellText) -> CellSyntaxError:
    """Return the error of Python's compiler as one of the cell, at its own line."""
    # Python's own error may have a location that is not in its `args`.
    line = getattr(error, "lineno", None) or cell.lines_before + 1
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return CellSyntaxError(message, (cell.filename, line, getattr(error, "offset", None), _line(cell, line)))


def _line(cell: CellText, number: int) -> str | None:
    lines = cell.padded.splitlines()
    return lines[number - 1] if number <= len(lines) else None


def _refuse_invalid_in_function(statements: list[ast.stmt], cell: CellText) -> None:
    """Report in terms of the cell what Python would report of a function that the user never wrote."""
    for node in own_nodes(statements):
        match node:
            case ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                why = "'await' at the top of a %%tfos cell: nodes run a plain function; use asyncio.run(...)"
            case ast.Yield() | ast.YieldFrom():
                why = "'yield' at the top of a %%tfos cell: a node returns one value; collect them in a list"
            case ast.Global(names=names) if set(names) & set(_PARAMETERS):
                why = "'args' and 'ctx' are given to the cell, and cannot be global"
            case ast.Nonlocal():
                why = "'nonlocal' at the top of a %%tfos cell: there is no function around it"
            case ast.ImportFrom(names=[ast.alias(name="*")]):
                why = (
                    "'import *' in a %%tfos cell, whose body is a function: import the names that you need, or put "
                    "this line into a cell of its own"
                )
            case _:
                continue
        raise CellSyntaxError(why, (cell.filename, node.lineno, node.col_offset + 1, _line(cell, node.lineno)))


def _return_last_value(statements: list[ast.stmt], body: str) -> bool:
    """Make the last expression a return, unless a ``;`` follows it; return whether it is the only return of a value."""
    last = statements[-1]
    if isinstance(last, ast.Expr) and not DisplayHook.semicolon_at_end_of_expression(body):  # type: ignore[no-untyped-call]
        returned = [node.value for node in own_nodes(statements) if isinstance(node, ast.Return)]
        statements[-1] = ast.copy_location(ast.Return(last.value), last)
        return all(value is None or (isinstance(value, ast.Constant) and value.value is None) for value in returned)
    return False


# ---- compiling ------------------------------------------------------------------------------------------------------


def visible_names(shell: Any) -> dict[str, Any]:
    """Return the notebook's names, without those that IPython put there for itself (``get_ipython``, ``exit``)."""
    hidden = shell.user_ns_hidden
    return {
        name: value
        for name, value in shell.user_ns.items()
        if not (name in hidden and hidden[name] is value) and not name.startswith("__")
    }


def _compile(
    statements: list[ast.stmt], cell: CellText, flags: int, names: Mapping[str, Any]
) -> tuple[types.CodeType, dict[str, Any], dict[str, Any]]:
    """Return the function's code, the values of its captured local names, and its global names."""
    code = _compile_function(statements, [], cell, flags)
    own = set(code.co_varnames[len(_PARAMETERS) :]) | set(code.co_cellvars) - set(_PARAMETERS)
    defaults = capture(statements, {name: names[name] for name in own if name in names})
    looked_up = [name for name in _looked_up_in_classes(code) if name in names]
    if defaults or looked_up:
        code = _compile_function(_mention(looked_up, statements), list(defaults), cell, flags)
    space = {name: names[name] for name in global_names(code) if name in names}
    space |= {"__name__": "__main__", "__builtins__": builtins}
    return code, defaults, space


def _compile_function(statements: list[ast.stmt], defaults: list[str], cell: CellText, flags: int) -> types.CodeType:
    """Compile ``def map_fun(args, ctx, *, defaults...)``."""
    function = ast.FunctionDef(
        name=_NAME,
        args=ast.arguments(
            posonlyargs=[],
            args=[ast.arg(arg=name) for name in _PARAMETERS],
            kwonlyargs=[ast.arg(arg=name) for name in defaults],
            kw_defaults=[None] * len(defaults),
            defaults=[],
        ),
        body=statements,
        decorator_list=[],
        lineno=max(cell.lines_before, 1),
        col_offset=0,
        end_lineno=max(node.end_lineno or 0 for node in statements),
        end_col_offset=0,
    )
    module = ast.fix_missing_locations(ast.Module(body=[function], type_ignores=[]))
    try:
        code = compile(module, cell.filename, "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise as_cell_error(error, cell) from None
    return next(const for const in code.co_consts if isinstance(const, types.CodeType) and const.co_name == _NAME)


def _looked_up_in_classes(code: types.CodeType) -> list[str]:
    """Return the global names that class bodies look up; pickling by value does not find them."""
    names: dict[str, None] = {}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            for instruction in dis.get_instructions(constant):
                if instruction.opname in ("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
                    names[str(instruction.argval)] = None
            names.update(dict.fromkeys(_looked_up_in_classes(constant)))
    return list(names)


def _mention(names: list[str], statements: list[ast.stmt]) -> list[ast.stmt]:
    """Put a lambda that is never called before the statements, so that ``names`` count as used."""
    if not names:
        return statements
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    tuple_ = ast.Tuple(elts=[ast.Name(id=name, ctx=ast.Load()) for name in names], ctx=ast.Load())
    mention = ast.copy_location(ast.Expr(ast.Lambda(args=nothing, body=tuple_)), statements[0])
    return [ast.fix_missing_locations(mention), *statements]


# ---- where a cell's code is ------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"In\[(\d+)\]")


class CellText(NamedTuple):
    """A cell as typed: its file name in code objects, the number of lines before its body, and the body."""

    filename: str
    lines_before: int
    body: str

    @property
    def padded(self) -> str:
        """The body at its own line numbers, below empty lines."""
        return "\n" * self.lines_before + self.body


def register_cell(shell: Any, line: str, body: str) -> CellText:
    """Register the text of the cell that runs now for tracebacks and debuggers."""
    code = body.rstrip("\n")
    for text in _typed_texts(shell):
        above = text.rstrip("\n").removesuffix(code)
        if above != text.rstrip("\n") and "%%tfos" in above:
            break
    else:
        above = f"%%tfos {line}".rstrip() + "\n"
        text = above + body
    # The kernel, and a front end that sets a breakpoint, derive the file name from the raw text.
    filename = shell.compile.cache(sources.as_python(above) + body, cell_number(shell), raw_code=text)
    return CellText(filename, above.count("\n"), body)


def _typed_texts(shell: Any) -> Iterator[str]:
    """Yield candidates for the whole text of the cell: from the front end's request, and from the history."""
    kernel = getattr(shell, "kernel", None)
    if kernel is not None:
        yield str(kernel.get_parent().get("content", {}).get("code", ""))
    if shell.history_manager and shell.history_manager.input_hist_raw:
        yield str(shell.history_manager.input_hist_raw[-1])


def typed_cell(shell: Any) -> str:
    """Return what is the same when the cell that runs now runs again: its identity in the front end, else its text."""
    kernel = getattr(shell, "kernel", None)
    known = kernel.get_parent().get("metadata", {}).get("cellId", "") if kernel is not None else ""
    return str(known or next(_typed_texts(shell), ""))


def cell_number(shell: Any) -> int:
    """Return the number of the cell that runs now; some versions of IPython have already increased their count."""
    frame = inspect.currentframe()
    while frame is not None:
        named = shell.compile.format_code_name(frame.f_code.co_filename)
        found = _NUMBER.fullmatch(named[1]) if named else None
        if found:
            return int(found[1])
        frame = frame.f_back
    return int(shell.execution_count)


def make_labeller(shell: Any) -> Callable[[str], str | None]:
    """Return a function that labels file names of the shell's cells, such as ``Cell In[5]``."""

    def label(filename: str) -> str | None:
        named = shell.compile.format_code_name(filename)
        return " ".join(named) if named else None

    return label
