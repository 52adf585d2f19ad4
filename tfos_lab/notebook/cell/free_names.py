"""Which names a cell reads before it assigns them: their values must come from the notebook.

In a notebook ``x = x + 1`` reads the notebook's ``x``; in a function, which a ``%%tfos`` cell becomes, it would be an
error. A name that may be read before it is assigned is therefore bound to the notebook's value at entry. A name that is
always assigned first (``model = build()``) must not be captured, as the notebook's ``model`` may be large or impossible
to pickle.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tfos_lab.core.unpicklable import unpicklable_kind

# ---- symbols of a cell -----------------------------------------------------------------------------------------------


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


class EarlyReads(NamedTuple):
    """Names that are unassigned where they are read (``certain``), or may be (``possible``)."""

    certain: frozenset[str]
    possible: frozenset[str]


def early_reads(body: list[ast.stmt]) -> EarlyReads:
    """Return the names that the statements may read before they assign them, global names included."""
    reader = _Reader()
    reader.visit_all(body)
    # Functions are called at an unknown time: fine if what they read has a value wherever the cell ends.
    has_value = reader.bound.intersection(*reader.returns)
    return EarlyReads(
        frozenset(reader.certain), frozenset((reader.possible | (reader.deferred - has_value)) - reader.certain)
    )


def capture(body: list[ast.stmt], names: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the names, with their values, that the statements may read before they assign them.

    What may never be read is left out if it could not travel.
    """
    reads = early_reads(body)
    found = {name: names[name] for name in sorted(reads.certain | reads.possible) if name in names}
    return {name: value for name, value in found.items() if name in reads.certain or unpicklable_kind(value) is None}


class _Reader(ast.NodeVisitor):
    """Visits statements in the order in which they run; ``bound`` names have a value, ``maybe`` ones on some path."""

    def __init__(self) -> None:
        self.bound: set[str] = set()
        self.maybe: set[str] = set()
        self.certain: set[str] = set()
        self.possible: set[str] = set()
        self.deferred: set[str] = set()
        self.returns: list[set[str]] = []

    def visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def _read(self, name: str) -> None:
        if name not in self.bound:
            (self.possible if name in self.maybe else self.certain).add(name)

    def _bind(self, *names: str) -> None:
        self.bound.update(names)
        self.maybe.update(names)

    def _unbind(self, name: str) -> None:
        self.bound.discard(name)
        self.maybe.discard(name)

    # ---- what may not run --------------------------------------------------------------------------------------------

    def _apart(self, nodes: Iterable[ast.AST | None]) -> tuple[set[str], set[str]]:
        """Visit what may not run, or has a scope of its own; return the bound and maybe names at its end."""
        bound, maybe = self.bound, self.maybe
        self.bound, self.maybe = set(bound), set(maybe)
        self.visit_all(nodes)
        ends = self.bound, self.maybe
        self.bound, self.maybe = bound, maybe
        return ends

    def _branches(self, *blocks: Sequence[ast.AST | None]) -> None:
        """Visit blocks of which one runs: what all assign that do not leave has a value afterwards."""
        ends = [self._apart(block) for block in blocks]
        bound = [end for block, (end, _) in zip(blocks, ends, strict=True) if not _leaves(block)]
        self.bound = set.intersection(*bound) if bound else self.bound
        self.maybe = self.maybe.union(*(maybe for _, maybe in ends))

    # ---- expressions -------------------------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> None:
        match node.ctx:
            case ast.Store():
                self._bind(node.id)
            case ast.Load():
                self._read(node.id)
            case ast.Del():
                self._read(node.id)
                self._unbind(node.id)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit_all([node.value, node.target])

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.visit(node.values[0])
        self._branches(node.values[1:], [])

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit(node.test)
        self._branches([node.body], [node.orelse])

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._define(node)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        steps = [part for one in node.generators for part in (one.iter, one.target, *one.ifs)]
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        _, maybe = self._apart([*steps, *results])
        self.maybe |= maybe - stored_names(one.target for one in node.generators)  # a walrus binds in the function

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    # ---- statements that assign --------------------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit_all([node.value, *node.targets])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        # Annotations of a function's own variables are not evaluated.
        self.visit_all([node.value, node.target] if node.value is not None else [])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._read(node.target.id)
        self.visit_all([node.value, node.target])

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        self._bind(*stored_names([node]))

    visit_Import = visit_ImportFrom = _import  # noqa: N815

    def _define(self, node: Function) -> None:
        if not isinstance(node, ast.Lambda):
            self.visit_all([*node.decorator_list, node.returns])
        self.visit(node.args)
        self.deferred |= free_names(node)
        self._bind(*([] if isinstance(node, ast.Lambda) else [node.name]))

    visit_FunctionDef = visit_AsyncFunctionDef = _define  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.visit_all([*node.decorator_list, *node.bases, *node.keywords])
        self._apart(node.body)  # runs now, in a scope of its own
        self._bind(node.name)

    # ---- statements that branch --------------------------------------------------------------------------------------

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._branches(node.body, node.orelse)

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self._branches([node.target, *node.body], [])
        self._branches(node.orelse, [])

    visit_For = visit_AsyncFor = _for  # noqa: N815

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self._branches(node.body, [])
        self._branches(node.orelse, [])

    def _try(self, node: ast.Try | ast.TryStar) -> None:
        before, body = self.bound, [*node.body, *node.orelse]
        ends = [self._apart(body)]
        self.maybe = self.maybe | stored_names(node.body)
        ends += [self._apart([handler]) for handler in node.handlers]
        self.maybe = self.maybe.union(stored_names(body), *(maybe for _, maybe in ends))
        blocks = [body, *(handler.body for handler in node.handlers)]
        bound = [end for block, (end, _) in zip(blocks, ends, strict=True) if not _leaves(block)]
        self.visit_all(node.finalbody)  # whatever came before was interrupted
        self.bound = self.bound | (set.intersection(*bound) if bound else before)

    visit_Try = _try  # noqa: N815
    visit_TryStar = _try  # noqa: N815

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.visit_all([node.type])
        names = [node.name] if node.name else []
        self._bind(*names)
        self.visit_all(node.body)
        for name in names:
            self._unbind(name)

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        last = node.cases[-1]
        catches_all = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None and last.guard is None
        self._branches(*([case] for case in node.cases), *([] if catches_all else [[]]))

    def visit_match_case(self, node: ast.match_case) -> None:
        self.visit(node.pattern)
        self._bind(*stored_names([node.pattern]))
        self.visit_all([node.guard, *node.body])

    def visit_Return(self, node: ast.Return) -> None:
        self.visit_all([node.value])
        self.returns.append(set(self.bound))


def _leaves(block: Sequence[ast.AST | None]) -> bool:
    """Whether what follows a block is not reached from its end."""
    last = block[-1] if block else None
    if isinstance(last, ast.match_case):
        return _leaves(last.body)
    return isinstance(last, ast.Return | ast.Raise | ast.Break | ast.Continue)
