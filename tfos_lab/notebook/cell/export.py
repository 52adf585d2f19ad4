"""Writes a ``%%tfos`` cell as a script for spark-submit, with the earlier cells that it depends on."""

from __future__ import annotations

import ast
import builtins
import io
import re
import tokenize
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from IPython.core.displayhook import DisplayHook

from tfos_lab.core.config import ClusterOptions, FeedOptions, train_keywords
from tfos_lab.core.options import part_of
from tfos_lab.errors import ConfigError
from tfos_lab.notebook.cell.free_names import early_reads, own_nodes, stored_names
from tfos_lab.notebook.options import CellOptions, is_for_waiting_nodes, split_line
from tfos_lab.texts import nearest

_MARK = "# Written by `%tfos export` from a notebook."
_INDENT = "    "
# How each script begins.
_HEADER = (
    f"{_MARK}\n# Run it with:  spark-submit THIS_FILE.py",
    "from pyspark.sql import SparkSession\n\nimport tfos_lab",
)

# The expressions of these options are written into the script, so names that they use are needed there.
_EXPRESSIONS = ("data", "validation", "args", "spark", "env", "columns")
# Cell magics whose body is plain Python.
_PYTHON_MAGICS = ("%%time", "%%timeit", "%%capture", "%%prun")


_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Pass)


class FinishedCell(NamedTuple):
    """A ``%%tfos`` cell that was run: its line and body, its options, and the local names that it captured."""

    line: str
    body: str
    options: CellOptions
    captured: Sequence[str]


def write(path: str, text: str) -> Path:
    """Write a script, and return its path; an older export is replaced, and no other file."""
    target = Path(path).expanduser()
    if target.exists() and not target.read_text(encoding="utf-8", errors="replace").startswith(_MARK):
        raise ConfigError([f"{target} exists and was not written by %tfos export: give another name, or remove it"])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return target


def _names_needed_by(cell: FinishedCell) -> set[str]:
    """Return the names that a ``%%tfos`` cell and its line take from earlier cells."""
    expressions = [text for name, text in _texts(cell).items() if name in _EXPRESSIONS]
    own = stored_names(ast.parse(cell.body).body) | {"args", "ctx"}
    needed = _used_names(cell.body) - own | set(cell.captured) | {"spark"}
    return needed.union(*map(_used_names, expressions))


def _texts(cell: FinishedCell) -> dict[str, str]:
    return {item.key: item.value or "True" for item in split_line(cell.line).items}


def _needed(asked: Sequence[int], known: Mapping[int, EarlierCell]) -> tuple[list[int], set[str]]:
    """Return the cells that are asked for, and those that define or change what these need.

    They come as numbers, in order, with the names that no cell defines.
    """
    chosen = set(asked)
    wanted = {"spark"}.union(*(known[number].takes for number in chosen))
    # A function may use what a later cell defines.
    while more := {number for number, cell in known.items() if cell.gives & wanted} - chosen:
        chosen |= more
        wanted = wanted.union(*(known[number].takes for number in more))
    kept = [number for number in sorted(chosen) if number in asked or not _is_repeated(number, known)]
    defined = set().union(*(known[number].gives for number in kept))
    return kept, {name for name in wanted - defined if not hasattr(builtins, name)}


def _is_repeated(number: int, known: Mapping[int, EarlierCell]) -> bool:
    """Whether a cell of definitions only was run before without a change."""
    cell = known[number]
    return cell.only_defines and any(known.get(before) == cell for before in range(number))


class EarlierCell(NamedTuple):
    """A cell that was run before, with the names that it assigns or changes, and those that it uses."""

    source: str
    gives: frozenset[str]
    takes: frozenset[str]
    only_defines: bool

    @classmethod
    def read(cls, text: str) -> EarlierCell | None:
        """Return the analysis of a cell, or None if it is not Python."""
        source = _as_python(text).strip()
        tree = _parse(source)
        if tree is None:
            return None
        gives = frozenset(stored_names(tree.body) | _changed_names(tree))
        return cls(source, gives, frozenset(_used_names(source)), all(isinstance(n, _DEFINITIONS) for n in tree.body))


def _as_python(text: str) -> str:
    """Return a cell without what only notebooks understand."""
    lines = text.strip("\n").split("\n")
    if lines[0].startswith("%%"):
        if not lines[0].startswith(_PYTHON_MAGICS):
            return ""
        lines = lines[1:]
    lines = [re.sub(r"^([%!].*)$", r"# \1", line) for line in lines]
    return "\n".join(re.sub(r"^(\s+)([%!].*)$", r"\1pass  # \2", line) for line in lines)


def _parse(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def _used_names(source: str) -> set[str]:
    """Return the names that a cell or an expression takes from earlier cells; locals of functions do not count."""
    tree = _parse(source)
    if tree is None:
        return set()
    reads = early_reads(tree.body)
    return set(reads.certain | reads.possible)


def _changed_names(tree: ast.Module) -> set[str]:
    """Return the names whose values are changed in place: ``rows.append(1)``, ``conf['a'] = 1``."""
    roots = set()
    for node in own_nodes(tree.body):
        changed: list[ast.expr] = []
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            changed = [node.value.func]
        elif isinstance(node, ast.Assign):
            changed = list(node.targets)
        elif isinstance(node, ast.AugAssign):
            changed = [node.target]
        for target in changed:
            root: ast.expr = target
            while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
                root = root.func if isinstance(root, ast.Call) else root.value
            if isinstance(root, ast.Name) and root is not target:
                roots.add(root.id)
    return roots


# ---- the function ---------------------------------------------------------------------------------------------------


def _with_return(body: str) -> str:
    """Put ``return`` before a last expression, as the cell had it."""
    last = ast.parse(body).body[-1]
    if not isinstance(last, ast.Expr) or DisplayHook.semicolon_at_end_of_expression(body):  # type: ignore[no-untyped-call]
        return body
    lines = body.split("\n")
    line = lines[last.lineno - 1].encode()
    lines[last.lineno - 1] = (line[: last.col_offset] + b"return " + line[last.col_offset :]).decode()
    return "\n".join(lines)


def _indent(source: str) -> str:
    """Indent code, except lines inside of multi-line strings."""
    within: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
            within.update(range(token.start[0] + 1, token.end[0] + 1))
    lines = source.split("\n")
    return "\n".join(
        line if number in within or not line.strip() else _INDENT + line for number, line in enumerate(lines, 1)
    )


def _main(options: CellOptions, texts: dict[str, str], function: str) -> str:
    """Return the part that runs the function with the options of the cell's line."""
    said = {**options.defaults, **options.given}
    keywords = [f"spark={texts.get('spark', 'spark')}", *_written(part_of(ClusterOptions, said))]
    name = options.cluster.name
    lines = [f"{name} = tfos_lab.run({function}, {texts.get('args', 'None')}, {', '.join(keywords)})", f"with {name}:"]
    if options.cluster.tensorboard:
        lines.append(f'{_INDENT}print("TensorBoard:", {name}.tensorboard_url)')
    if options.data is not None:
        held_out = [f"validation={texts['validation']}"] if options.validation is not None else []
        rows = [texts["data"], *held_out, *_written(train_keywords(part_of(FeedOptions, said)))]
        lines.append(f"{_INDENT}{name}.train({', '.join(rows)})")
    lines.append(f"{_INDENT}print({name}.wait())")
    return 'if __name__ == "__main__":\n' + "\n".join(_INDENT + line for line in lines)


def _written(keywords: Mapping[str, object]) -> list[str]:
    return [f"{keyword}={value!r}" for keyword, value in keywords.items()]


# ---- which cells are meant -------------------------------------------------------------------------------------------


class NotebookCells(NamedTuple):
    """The cells that have been run: the texts of all by number (number 0 is empty), and those with ``%%tfos``."""

    texts: Sequence[str]
    finished: Mapping[int, FinishedCell]

    def numbers_of(self, words: Sequence[str]) -> list[int]:
        """Return the numbers of the cells that are asked for: by number, or by the ``name`` of their cluster.

        A `ConfigError` names each that is not there, or cannot be exported.
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
        kept, missing = _needed(numbers, known)
        runs = [number for number in kept if number in self.finished]
        parts = [*_HEADER]
        if "spark" in missing:
            parts.append("spark = SparkSession.builder.getOrCreate()")
        if unknown := sorted(missing - {"spark"}):
            parts.append(f"# The notebook's cells did not define: {', '.join(unknown)}")
        for number in kept:
            cell = self.finished.get(number)
            if cell is None:
                parts.append(known[number].source)
                continue
            function = "map_fun" if len(runs) == 1 else f"map_fun_{number}"
            captured = "".join(f", {name}={name}" for name in cell.captured)
            signature = f"def {function}(args, ctx=None{', *' if captured else ''}{captured}):"
            body = _indent(_with_return(cell.body.strip("\n")))
            parts += [f"{signature}\n{body}", _main(cell.options, _texts(cell), function)]
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
                known[number] = EarlierCell("", gives, frozenset(_names_needed_by(cell)), only_defines=False)
        return known
