"""The options as documents list them: ``%%tfos?`` in a notebook, ``docs/options.md`` for readers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tfos_lab.core.options import Option, OptionGroup
from tfos_lab.jupyter.options.table import OPTIONS


def describe_options() -> str:
    """Return all options as text, for ``%%tfos?``."""
    width = max(len(one.name) for one in OPTIONS)
    return "\n".join(f"{one.name:<{width}}  {one.meaning} [{one.type_text}; {one.shown_default}]" for one in OPTIONS)


def options_markdown() -> str:
    """Return all options as tables in Markdown, one for each group."""
    return "\n\n".join("\n".join(_table(group, list(members))) for group, members in _grouped())


def _grouped() -> Iterator[tuple[OptionGroup, Iterator[Option]]]:
    return itertools.groupby(OPTIONS, key=lambda one: one.group)


def _table(group: OptionGroup, members: list[Option]) -> list[str]:
    rows = [f"| `{one.name}` | {_meaning(one)} | {_default(one)} |" for one in members]
    return [f"### {group}", "", "| option | meaning | default |", "|---|---|---|", *rows]


def _meaning(one: Option) -> str:
    text = f"{one.meaning}. {one.details}" if one.details else one.meaning
    return text.replace("``", "`").replace("|", "\\|")


def _default(one: Option) -> str:
    spoken = one.default_text or one.shown_default == "none"
    return one.shown_default if spoken else f"`{one.shown_default}`"
