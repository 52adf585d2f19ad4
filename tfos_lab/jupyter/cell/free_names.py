"""Which names a cell reads before it assigns them: their values must come from the notebook.

In a notebook ``x = x + 1`` reads the notebook's ``x``; in a function, which a ``%%tfos`` cell becomes, it would be an
error. A name that may be read before it is assigned is therefore bound to the notebook's value at entry. This analysis
follows the control flow, as a compiler does: a name that is always assigned first (``model = build()``) must not be
captured, as the notebook's ``model`` may be large or impossible to pickle.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tfos_lab.jupyter.cell.symbols import free_names, stored_names

_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class EarlyReads(NamedTuple):
    """Names that are read unassigned on every path (``certain``), or only on some paths (``possible``)."""

    certain: frozenset[str]
    possible: frozenset[str]


def early_reads(body: list[ast.stmt]) -> EarlyReads:
    """Return the names that the statements may read before they assign them, global names included."""
    reader = _Reader()
    state = reader.block(body, _State())
    ends = [*reader.returns, *([state] if state.alive else [])]
    for name in reader.deferred:
        # Called at an unknown time: fine if the name has a value at every end of the body.
        if not ends or not all(name in end.definite for end in ends):
            reader.possible.add(name)
    return EarlyReads(frozenset(reader.certain), frozenset(reader.possible - reader.certain))


@dataclass
class _State:
    """The names that have a value: on every path to a point, and on some path; not alive after return or raise."""

    definite: set[str] = field(default_factory=set)
    maybe: set[str] = field(default_factory=set)
    alive: bool = True

    def copy(self) -> _State:
        return _State(set(self.definite), set(self.maybe), self.alive)

    def bind(self, name: str) -> None:
        self.definite.add(name)
        self.maybe.add(name)

    def unbind(self, name: str) -> None:
        self.definite.discard(name)
        self.maybe.discard(name)


def _join(states: Iterable[_State], fallback: _State) -> _State:
    """Return the state after several paths have joined; paths that have ended do not count."""
    living = [state for state in states if state.alive]
    if not living:
        return _State(set(fallback.definite), set(fallback.maybe), alive=False)
    return _State(
        set.intersection(*(state.definite for state in living)), set.union(*(state.maybe for state in living))
    )


class _Reader:
    """Walks statements in the order in which they run."""

    def __init__(self) -> None:
        self.certain: set[str] = set()
        self.possible: set[str] = set()
        self.deferred: set[str] = set()
        self.returns: list[_State] = []
        self._breaks: list[list[_State]] = []

    def block(self, body: list[ast.stmt], state: _State) -> _State:
        for statement in body:
            state = self._statement(statement, state)
        return state

    def _statement(self, node: ast.stmt, state: _State) -> _State:
        method = getattr(self, f"_do_{type(node).__name__.lower()}", None)
        if method is None:
            self._expressions(ast.iter_child_nodes(node), state)
            return state
        after: _State = method(node, state)
        return after

    def _read(self, name: str, state: _State) -> None:
        if not state.alive or name in state.definite:
            return
        (self.possible if name in state.maybe else self.certain).add(name)

    # ---- expressions -------------------------------------------------------------------------------------------------

    def _expressions(self, nodes: Iterable[ast.AST | None], state: _State) -> None:
        for node in nodes:
            if node is not None:
                self._expression(node, state)

    def _expression(self, node: ast.AST, state: _State) -> None:
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                self._read(name, state)
            case ast.Name(id=name, ctx=ast.Store()):
                state.bind(name)
            case ast.NamedExpr(target=target, value=value):
                self._expressions([value, target], state)
            case ast.Lambda(args=arguments):
                self._expressions([*arguments.defaults, *arguments.kw_defaults], state)
                self.deferred |= free_names(node)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._comprehension(node, state)
            case ast.BoolOp(values=[first, *rest]):
                self._expression(first, state)
                self._conditional(rest, state)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._expression(test, state)
                self._conditional([body], state)
                self._conditional([orelse], state)
            case _:
                self._expressions(ast.iter_child_nodes(node), state)

    def _conditional(self, nodes: list[ast.expr], state: _State) -> None:
        """Walk expressions that may not run: names that they assign may have a value."""
        inner = state.copy()
        self._expressions(nodes, inner)
        state.maybe |= inner.maybe

    def _comprehension(self, node: _Comprehension, state: _State) -> None:
        targets = set[str]()
        inner = state.copy()
        for generator in node.generators:
            self._expression(generator.iter, inner)
            self._expression(generator.target, inner)
            targets |= stored_names([generator.target])
            self._expressions(generator.ifs, inner)
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._expressions(results, inner)
        state.maybe |= inner.maybe - targets  # a walrus binds in the function

    # ---- statements that assign --------------------------------------------------------------------------------------

    def _do_assign(self, node: ast.Assign, state: _State) -> _State:
        self._expressions([node.value, *node.targets], state)
        return state

    def _do_annassign(self, node: ast.AnnAssign, state: _State) -> _State:
        # Annotations of a function's own variables are not evaluated.
        if node.value is not None:
            self._expressions([node.value, node.target], state)
        return state

    def _do_augassign(self, node: ast.AugAssign, state: _State) -> _State:
        if isinstance(node.target, ast.Name):
            self._read(node.target.id, state)
        self._expressions([node.value, node.target], state)
        return state

    def _do_delete(self, node: ast.Delete, state: _State) -> _State:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._read(target.id, state)
                state.unbind(target.id)
            else:
                self._expression(target, state)
        return state

    def _do_import(self, node: ast.Import | ast.ImportFrom, state: _State) -> _State:
        for alias in node.names:
            state.bind(alias.asname or alias.name.partition(".")[0])
        return state

    _do_importfrom = _do_import

    def _do_functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, state: _State) -> _State:
        self._expressions([*node.decorator_list, node.args, node.returns], state)
        self.deferred |= free_names(node)
        state.bind(node.name)
        return state

    _do_asyncfunctiondef = _do_functiondef

    def _do_classdef(self, node: ast.ClassDef, state: _State) -> _State:
        self._expressions([*node.decorator_list, *node.bases, *node.keywords], state)
        self.block(node.body, state.copy())  # runs now, in a scope of its own
        state.bind(node.name)
        return state

    # ---- statements that branch --------------------------------------------------------------------------------------

    def _do_if(self, node: ast.If, state: _State) -> _State:
        self._expression(node.test, state)
        return _join([self.block(node.body, state.copy()), self.block(node.orelse, state.copy())], state)

    def _do_for(self, node: ast.For | ast.AsyncFor, state: _State) -> _State:
        self._expression(node.iter, state)
        inner = state.copy()
        self._expression(node.target, inner)
        self._loop(node.body, inner)
        return self._after_loop(node, state)

    _do_asyncfor = _do_for

    def _do_while(self, node: ast.While, state: _State) -> _State:
        self._expression(node.test, state)
        breaks = self._loop(node.body, state.copy())
        if isinstance(node.test, ast.Constant) and node.test.value:
            after = _join(breaks, state)  # the only ways out
            after.maybe |= stored_names(node.body)  # in an earlier round
            return after
        return self._after_loop(node, state)

    def _loop(self, body: list[ast.stmt], state: _State) -> list[_State]:
        self._breaks.append([])
        self.block(body, state)
        return self._breaks.pop()

    def _after_loop(self, node: ast.For | ast.AsyncFor | ast.While, state: _State) -> _State:
        state.maybe |= stored_names([node])
        return self.block(node.orelse, state)

    def _do_try(self, node: ast.Try, state: _State) -> _State:
        interrupted = state.copy()
        interrupted.maybe |= stored_names(node.body)
        ends = [self.block(node.orelse, self.block(node.body, state.copy()))]
        for handler in node.handlers:
            inner = interrupted.copy()
            self._expressions([handler.type], inner)
            if handler.name:
                inner.bind(handler.name)
            inner = self.block(handler.body, inner)
            if handler.name:
                inner.unbind(handler.name)
            ends.append(inner)
        after = _join(ends, state)
        interrupted.maybe |= after.maybe | stored_names(node.handlers)
        final = self.block(node.finalbody, interrupted)
        after.definite |= final.definite
        after.maybe |= final.maybe
        after.alive = after.alive and final.alive
        return after

    _do_trystar = _do_try

    def _do_with(self, node: ast.With | ast.AsyncWith, state: _State) -> _State:
        for item in node.items:
            self._expressions([item.context_expr, item.optional_vars], state)
        return self.block(node.body, state)

    _do_asyncwith = _do_with

    def _do_match(self, node: ast.Match, state: _State) -> _State:
        self._expression(node.subject, state)
        ends = []
        for case in node.cases:
            inner = state.copy()
            self._expression(case.pattern, inner)
            for name in stored_names([case.pattern]):
                inner.bind(name)
            self._expressions([case.guard], inner)
            ends.append(self.block(case.body, inner))
        last = node.cases[-1]
        catches_all = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None and last.guard is None
        return _join(ends if catches_all else [*ends, state], state)

    # ---- statements that end a path ----------------------------------------------------------------------------------

    def _do_return(self, node: ast.Return, state: _State) -> _State:
        self._expressions([node.value], state)
        if state.alive:
            self.returns.append(state.copy())
        return _State(state.definite, state.maybe, alive=False)

    def _do_raise(self, node: ast.Raise, state: _State) -> _State:
        self._expressions([node.exc, node.cause], state)
        return _State(state.definite, state.maybe, alive=False)

    def _do_break(self, _node: ast.Break, state: _State) -> _State:
        if self._breaks:
            self._breaks[-1].append(state.copy())
        return _State(state.definite, state.maybe, alive=False)

    def _do_continue(self, _node: ast.Continue, state: _State) -> _State:
        return _State(state.definite, state.maybe, alive=False)
