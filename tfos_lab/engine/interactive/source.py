"""Compiles a cell for nodes that keep its names: its statements, and its last expression, whose value is the cell's."""

from __future__ import annotations

import ast
from types import CodeType
from typing import NamedTuple


class CompiledCell(NamedTuple):
    """The code of a cell; either part may be missing."""

    body: CodeType | None
    last: CodeType | None


def compile_statements(
    statements: list[ast.stmt], filename: str, *, flags: int = 0, shows_last: bool = True
) -> CompiledCell:
    """Compile parsed statements; raises SyntaxError for what only a function may contain, such as ``return``."""
    last = statements[-1] if shows_last and statements and isinstance(statements[-1], ast.Expr) else None
    first = statements[:-1] if last is not None else statements
    body = ast.Module(body=first, type_ignores=[])
    return CompiledCell(
        compile(body, filename, "exec", flags, dont_inherit=True) if first else None,
        compile(ast.Expression(last.value), filename, "eval", flags, dont_inherit=True) if last else None,
    )


def compile_text(text: str, filename: str = "<cell>") -> CompiledCell:
    """Compile a cell's text."""
    return compile_statements(ast.parse(text, filename).body, filename)
