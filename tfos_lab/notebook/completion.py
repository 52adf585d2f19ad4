"""Tab and Shift-Tab: options, values and DataFrames after ``%%tfos``, given names below it, commands after ``%tfos``.

A cell is given ``ctx``, ``args`` and the handle ``cluster``, which the notebook lacks. Stand-ins for them have their
attributes and documents; nothing of the user's runs to find out.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.core.guarded_eval import EvaluationContext, guarded_eval

from tfos_lab.core.markup import h
from tfos_lab.core.options import Option, OptionType
from tfos_lab.driver.cluster import Cluster
from tfos_lab.node.context.context import NodeContext
from tfos_lab.notebook.interactive import waiting_clusters
from tfos_lab.notebook.options import BY_NAME, OPTIONS, UnreadableValue, read_value, split_line

_CELL_LINE = re.compile(r"\s*%%tfos\s(?P<rest>.*)", re.DOTALL)
_COMMAND_LINE = re.compile(r"\s*%tfos\s+(?P<rest>.*)", re.DOTALL)
_LAST_ITEM = re.compile(r"(?:(?P<key>\w+)\s*=\s*)?(?P<word>\S*)$")
_CELL = re.compile(r"\s*%%tfos\b(?P<line>[^\n]*)\n(?P<body>.*)", re.DOTALL)
_ATTRIBUTE = re.compile(r"(?<![\w.\])])(?P<root>ctx|args|cluster)\s*\.\s*(?P<word>\w*)$")
_KEY = re.compile(r"(?<![\w.\])])args\[(?P<quote>['\"])(?P<word>[^'\"]*)$")
# ``name : type`` or ``name, name : type`` in the docstring of a class.
_DOCUMENTED = re.compile(r"^(\w+(?:, \w+)*) : (.+)\n((?:    .+\n?)+)", re.MULTILINE)
_IDENTITY = "__tfos_lab_help__"


def install(shell: Any, complete_command: Callable[[list[str]], Iterable[str]]) -> None:
    """Have the shell complete and explain what is ours; may be called twice.

    ``complete_command`` takes the finished arguments of ``%tfos``, and returns what can follow.
    """
    remove(shell)
    shell.Completer.custom_matchers.append(_make_matcher(shell, complete_command))
    original = shell.object_inspect_mime

    def object_inspect_mime(oname: str, detail_level: int = 0, omit_sections: Any = ()) -> dict[str, str]:
        given = _given_names(_asked_cell(shell), shell.user_ns)
        if oname.partition(".")[0] in given:
            info = shell._ofind(oname, [("given to the cell", given)])  # noqa: SLF001
            if isinstance(info.obj, property):
                text = inspect.getdoc(info.obj) or ""
                return {"text/plain": text, "text/html": h("pre", text)}
            if info.found:
                shown: dict[str, str] = shell.inspector._get_info(info.obj, oname, info=info)  # noqa: SLF001
                return shown
        found: dict[str, str] = original(oname, detail_level, omit_sections)
        return found

    setattr(object_inspect_mime, _IDENTITY, True)
    shell.object_inspect_mime = object_inspect_mime


def remove(shell: Any) -> None:
    """Give the shell its own completion and help back."""
    matchers = shell.Completer.custom_matchers
    matchers[:] = [matcher for matcher in matchers if getattr(matcher, "matcher_identifier", None) != "tfos_lab"]
    if hasattr(shell.object_inspect_mime, _IDENTITY):
        del shell.object_inspect_mime


def _make_matcher(shell: Any, complete_command: Callable[[list[str]], Iterable[str]]) -> Any:
    @context_matcher(identifier="tfos_lab")  # type: ignore[untyped-decorator]
    def match_tfos(context: CompletionContext) -> SimpleMatcherResult:
        text = context.text_until_cursor
        cell, command = _CELL_LINE.match(text), _COMMAND_LINE.match(text)
        above = "".join(context.full_text.split("\n")[: context.cursor_line]).strip()
        if cell and not above:
            word, found = complete_options(cell["rest"], shell.user_ns)
        elif command:
            *finished, word = re.split(r"\s+", command["rest"])
            found = [SimpleCompletion(name, type="command") for name in complete_command(finished)]
        elif above.startswith("%%tfos"):
            word, found = _complete_given(text, _given_names(context.full_text, shell.user_ns))
        else:
            return SimpleMatcherResult(completions=[], suppress=False)
        fitting = [completion for completion in found if completion.text.startswith(word)]
        return SimpleMatcherResult(completions=fitting, matched_fragment=word, suppress=bool(fitting), ordered=True)

    return match_tfos


# ---- the line of a cell ---------------------------------------------------------------------------------------------


def complete_options(text: str, names: Mapping[str, Any]) -> tuple[str, list[SimpleCompletion]]:
    """Return the unfinished word at the end of an option line, and everything that could replace it."""
    items, problems = split_line(text)
    if problems and "not closed" in problems[-1]:
        return "", []  # within brackets or quotes: Python's own completion knows better
    last = _LAST_ITEM.search(text)
    assert last is not None
    word = last["word"]
    option = BY_NAME.get(last["key"] or "")
    if option is not None:
        return word, list(_values(option, names))
    given = {item.key for item in items if item.end < len(text)}
    return word, [
        SimpleCompletion(one.name if one.type is OptionType.FLAG else f"{one.name}=", type="param")
        for one in OPTIONS
        if one.name not in given
    ]


def _values(option: Option, names: Mapping[str, Any]) -> Iterable[SimpleCompletion]:
    """Yield possible values of an option: its choices, or the notebook's names whose values fit."""
    choices = ["true", "false"] if option.type is OptionType.FLAG else list(option.choices)
    if option.name == "on":
        waiting = waiting_clusters()
        choices = list(dict.fromkeys(cluster.name for cluster in waiting))
        choices += [f"{cluster.name}/{node.name}" for cluster in waiting for node in cluster.nodes]
    elif choices and option.optional:
        choices.append("None")
    for choice in choices:
        yield SimpleCompletion(choice, type="value")
    if choices or option.type is OptionType.LABEL:
        return
    for name, value in names.items():
        if not name.startswith("_") and value is not None and _fits(option, name, names):
            yield SimpleCompletion(name, type="instance")


def _fits(option: Option, name: str, names: Mapping[str, Any]) -> bool:
    try:
        return not option.problems(read_value(option, name, names))
    except UnreadableValue:
        return False


# ---- the names that a cell is given ---------------------------------------------------------------------------------


def _given_names(cell: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names that a cell gets from tfos_lab, not from the notebook or its own code, with stand-ins."""
    found = _CELL.match(cell)
    if found is None:
        return {}
    given = {"ctx": _stand_in(NodeContext)}
    if isinstance(names.get("cluster"), Cluster | None):
        given["cluster"] = _stand_in(Cluster)
    if (args := _args(found["line"], names)) is not None:
        given["args"] = args
    own = {name for name in given if re.search(rf"^\s*{name}\s*=(?!=)", found["body"], re.MULTILINE)}
    return {name: value for name, value in given.items() if name not in own}


def _stand_in(owner: type) -> object:
    """Return an object without state that has the attributes of a class and of its instances, with their documents."""
    documented = _DOCUMENTED.findall(inspect.getdoc(owner) or "")
    attributes = {
        name: property(lambda _self: None, doc=f"{name} : {kind}\n\n{inspect.cleandoc(text)}")
        for names, kind, text in documented
        for name in names.split(", ")
        if not hasattr(owner, name)
    }
    return object.__new__(type(owner.__name__, (owner,), {"__doc__": owner.__doc__, **attributes}))


def _args(line: str, names: Mapping[str, Any]) -> Any:
    """Return the value of the option ``args``, or None where evaluating it would run code."""
    text = next((item.value for item in split_line(line).items if item.key == "args"), None)
    if not text:
        return None
    try:
        return guarded_eval(text, EvaluationContext(locals={}, globals=dict(names), evaluation="limited"))
    except Exception:  # noqa: BLE001 - whatever cannot be evaluated is not known
        return None


def _complete_given(text: str, given: Mapping[str, Any]) -> tuple[str, list[SimpleCompletion]]:
    """Return the unfinished word before the cursor, and what can replace it."""
    if (found := _ATTRIBUTE.search(text)) and found["root"] in given:
        value = given[found["root"]]
        members = [(name, inspect.getattr_static(value, name, None)) for name in dir(value) if name[0] != "_"]
        return found["word"], [
            SimpleCompletion(name, type="function" if callable(member) else "property") for name, member in members
        ]
    if (found := _KEY.search(text)) and isinstance(given.get("args"), Mapping):
        return found["word"], [SimpleCompletion(key, type="value") for key in given["args"] if isinstance(key, str)]
    return "", []


def _asked_cell(shell: Any) -> str:
    kernel = getattr(shell, "kernel", None)
    message = kernel.get_parent() if kernel is not None else {}
    if message.get("header", {}).get("msg_type") != "inspect_request":
        return ""
    return str(message["content"].get("code", ""))
