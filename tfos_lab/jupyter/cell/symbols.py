"""Names and scopes in Python source: the names that a scope assigns, and the free names of a function."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def own_nodes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of one scope; of nested functions, classes and lambdas only the node itself."""
    for node in nodes:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from own_nodes(ast.iter_child_nodes(node))


def stored_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that the nodes assign in their own scope."""
    names: set[str] = set()
    for node in own_nodes(nodes):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name.partition(".")[0] for alias in aliases}
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.MatchMapping(rest=str(name)):
                names.add(name)
    return names


def free_names(function: Function) -> set[str]:
    """Return the names that a function takes from enclosing scopes."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    body = function.body if isinstance(function.body, list) else [function.body]
    bound = {argument.arg for argument in every if argument is not None} | stored_names(body)
    loaded: set[str] = set()
    for node in own_nodes(body):
        match node:
            case ast.Name(id=name):
                loaded.add(name)
            case ast.Nonlocal(names=names):
                bound -= set(names)
                loaded |= set(names)
            case ast.Global(names=names):
                bound |= set(names)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                loaded |= free_names(node)
            case ast.ClassDef(bases=bases, keywords=keywords, decorator_list=decorators, body=inner):
                loaded |= {n.id for part in (*bases, *keywords, *decorators) for n in ast.walk(part)
                           if isinstance(n, ast.Name)}  # fmt: skip
                loaded |= {n.id for n in own_nodes(inner) if isinstance(n, ast.Name)}
                loaded |= set().union(*(free_names(n) for n in own_nodes(inner) if isinstance(n, Function)))
    return loaded - bound
