"""Tab completion: options, values and DataFrames after ``%%tfos``, given names below it, commands after ``%tfos``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from tfos_lab.core.options import Option, OptionType
from tfos_lab.engine.start import clusters
from tfos_lab.jupyter.options.line import split_line
from tfos_lab.jupyter.options.table import BY_NAME, OF_WAITING_NODES, OPTIONS, takes_value
from tfos_lab.jupyter.options.values import UnreadableValue, all_choices, read_value

_CELL_LINE = re.compile(r"\s*%%tfos\s(?P<rest>.*)", re.DOTALL)
_COMMAND_LINE = re.compile(r"\s*%tfos\s+(?P<rest>.*)", re.DOTALL)
_LAST_ITEM = re.compile(r"(?:(?P<dashes>--)?(?P<key>[\w-]+)\s*=\s*)?(?P<word>\S*)$")


# Takes the cursor's line up to it, the cell and the notebook's names; returns the unfinished word, and what fits.
CompleteBody = Callable[[str, str, dict[str, Any]], tuple[str, list[SimpleCompletion]]]


def make_matcher(
    shell: Any, complete_command: Callable[[list[str]], Iterable[str]], complete_body: CompleteBody
) -> Any:
    """Return a matcher for ``shell.Completer.custom_matchers``.

    Parameters
    ----------
    shell : InteractiveShell
        Its names are completed.
    complete_command : callable
        Takes the finished arguments of ``%tfos``, returns what can follow.
    complete_body : callable
        Completes the lines below ``%%tfos``.
    """

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
            word, found = complete_body(text, context.full_text, shell.user_ns)
        else:
            return SimpleMatcherResult(completions=[], suppress=False)
        fitting = [completion for completion in found if completion.text.startswith(word)]
        return SimpleMatcherResult(completions=fitting, matched_fragment=word, suppress=bool(fitting), ordered=True)

    return match_tfos


def complete_options(text: str, names: Mapping[str, Any]) -> tuple[str, list[SimpleCompletion]]:
    """Return the unfinished word at the end of an option line, and everything that could replace it."""
    items, problems = split_line(text, takes_value)
    if problems and "not closed" in problems[-1]:
        return "", []  # within brackets or quotes: Python's own completion knows better
    last = _LAST_ITEM.search(text)
    assert last is not None
    word = last["word"]
    option = BY_NAME.get((last["key"] or "").replace("-", "_")) or _option_before(text[: last.start()])
    if option is not None:
        return word, list(_values(option, names))
    given = {item.key for item in items if item.end < len(text)}
    dashes = "--" if word.startswith("-") else ""
    return word, [_key(option, dashes) for option in OPTIONS if option.name not in given]


def _option_before(text: str) -> Option | None:
    """Return the option whose value comes next: ``--local`` and a space."""
    found = re.search(r"--([\w-]+)\s+$", text)
    option = BY_NAME.get(found[1].replace("-", "_")) if found else None
    return option if option is not None and option.type is not OptionType.FLAG else None


def _key(option: Option, dashes: str) -> SimpleCompletion:
    bare = option.type is OptionType.FLAG or dashes
    return SimpleCompletion(f"{dashes}{option.name}" if bare else f"{option.name}=", type="param")


def _values(option: Option, names: Mapping[str, Any]) -> Iterable[SimpleCompletion]:
    """Yield possible values of an option: its choices, or the notebook's names whose values fit."""
    if option.name in OF_WAITING_NODES:
        yield from (SimpleCompletion(name, type="value") for name in _waiting(option.name))
        return
    choices = ("true", "false") if option.type is OptionType.FLAG else all_choices(option)
    for choice in choices:
        yield SimpleCompletion(choice, type="value")
    if choices or option.type is OptionType.LABEL:
        return
    for name, value in names.items():
        if not name.startswith("_") and value is not None and _fits(option, name, names):
            yield SimpleCompletion(name, type="instance")


def _waiting(option_name: str) -> list[str]:
    """Return the clusters whose nodes wait for cells, or those nodes."""
    from tfos_lab.engine.interactive.cluster import InteractiveCluster

    waiting = [cluster for cluster in clusters() if isinstance(cluster, InteractiveCluster) and not cluster.ended]
    names = [[cluster.name] if option_name == "on" else [node.name for node in cluster.nodes] for cluster in waiting]
    return list(dict.fromkeys(name for some in names for name in some))


def _fits(option: Option, name: str, names: Mapping[str, Any]) -> bool:
    try:
        read_value(option, name, names)
    except UnreadableValue:
        return False
    return True
