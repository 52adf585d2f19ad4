"""Several cells of the notebook as one script: those that were named, and those that they depend on, in order."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.cell.export import (
    HEADER,
    EarlierCell,
    FinishedCell,
    definitions_of,
    names_needed_by,
    statements_of,
)
from tfos_lab.jupyter.options import is_for_waiting_nodes
from tfos_lab.texts import nearest


class NotebookCells(NamedTuple):
    """The cells that have been run.

    Attributes
    ----------
    texts : sequence of str
        Their texts, by number; that of number 0 is empty.
    finished : mapping of int to FinishedCell
        Those with ``%%tfos``, by number.
    """

    texts: Sequence[str]
    finished: Mapping[int, FinishedCell]

    def numbers_of(self, words: Sequence[str]) -> list[int]:
        """Return the numbers of the cells that are asked for: by number, or by the ``name`` of their cluster.

        Raises
        ------
        ConfigError
            For each that is not there, or cannot be exported.
        """
        found = [self._number_of(word) for word in words]
        problems = [problem for problem in found if isinstance(problem, str)]
        if problems:
            raise ConfigError(problems)
        return sorted({number for number in found if isinstance(number, int)})

    def _number_of(self, word: str) -> int | str:
        """Return the number of a cell, or what is wrong."""
        if not word.isdigit():
            names = {cell.options.cluster.name: number for number, cell in sorted(self.finished.items())}
            close = nearest(word, names)
            hint = f"did you mean {close}?" if close else f"there are {', '.join(names) or 'none yet'}"
            return names.get(word, f"{word}: this is no cell's number, and no %%tfos cell has that name; {hint}")
        number = int(word)
        text = self.texts[number].strip() if 0 < number < len(self.texts) else ""
        first = text.partition("\n")[0]
        if not text:
            return f"{word}: this kernel has run no cell In[{word}]"
        if number in self.finished:
            return number
        if first.startswith("%%tfos"):
            if is_for_waiting_nodes(first.removeprefix("%%tfos")):
                return f"{word}: In[{word}] runs on nodes that wait, and a script has none; export others"
            return f"{word}: In[{word}] did not get as far as its nodes; correct it, and run it again"
        if EarlierCell.read(text) is None:
            return f"{word}: In[{word}] is no Python"
        return number

    def script(self, numbers: Sequence[int]) -> str:
        """Return the cells with these numbers, and those that they depend on, as the text of a script."""
        known = self._known(numbers)
        chosen = set(numbers)
        wanted = {"spark"}.union(*(known[number].takes for number in chosen))
        while more := {number for number, cell in known.items() if cell.gives & wanted} - chosen:
            chosen |= more
            wanted |= set().union(*(known[number].takes for number in more))
        kept = [number for number in sorted(chosen) if number in numbers or not self._is_repeated(number, known)]
        defined = set().union(*(known[number].gives for number in kept))
        missing = {name for name in wanted - defined if not hasattr(builtins, name)}
        runs = [number for number in kept if number in self.finished]
        parts = [*HEADER, *definitions_of(missing)]
        for number in kept:
            function = "map_fun" if len(runs) == 1 else f"map_fun_{number}"
            is_run = number in self.finished
            parts += statements_of(self.finished[number], function) if is_run else [known[number].source]
        return "\n\n".join(parts) + "\n"

    def _known(self, numbers: Sequence[int]) -> dict[int, EarlierCell]:
        """Return all cells that may be needed, by number; of several runs of a ``%%tfos`` cell, the last one."""
        last = max(numbers)
        latest = {cell.options.cluster.name: number for number, cell in sorted(self.finished.items()) if number <= last}
        known: dict[int, EarlierCell] = {}
        for number, text in enumerate(self.texts[: last + 1]):
            cell = self.finished.get(number)
            if cell is None:
                if (read := EarlierCell.read(text)) is not None:
                    known[number] = read
            elif number in numbers or number in latest.values():
                gives = frozenset({cell.options.cluster.name})
                known[number] = EarlierCell("", gives, frozenset(names_needed_by(cell)), only_defines=False)
        return known

    def _is_repeated(self, number: int, known: Mapping[int, EarlierCell]) -> bool:
        """Whether a cell of definitions only was run before without a change."""
        cell = known[number]
        return cell.only_defines and any(known.get(before) == cell for before in range(number))
