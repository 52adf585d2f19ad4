"""The commands of ``%tfos`` for runs of this and earlier kernels: history, open, compare, pin, unpin and prune."""

from __future__ import annotations

from pathlib import Path

from tfos_lab.engine.runs.find import choose_run, may_mean
from tfos_lab.engine.runs.prune import Pruned, pin_run, prune_runs
from tfos_lab.engine.runs.read import name_place, read_runs
from tfos_lab.engine.runs.run import Run
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.commands.command import Command, expect
from tfos_lab.jupyter.display.formats import format_bytes
from tfos_lab.jupyter.display.history import SHOWN, HistoryTable
from tfos_lab.jupyter.display.history_compare import Comparison
from tfos_lab.jupyter.display.history_page import RunPage
from tfos_lab.jupyter.display.history_text import short_ids
from tfos_lab.jupyter.display.tensorboard import TensorBoardView, view_folder
from tfos_lab.texts import format_count

# With one name, so many of its newest runs are compared.
_COMPARED = 6


def show_history(arguments: list[str]) -> HistoryTable:
    """Show the runs: ``history [address] [name ...] [last=N|all] [folder=PATH]``."""
    usage = "history [address] [name ...] [last=N|all] [folder=PATH]"
    names, given = _split(arguments, usage, ("last", "folder"))
    names, folder = name_place(names, given.get("folder"))
    last = given.get("last", str(SHOWN))
    count = None if last == "all" else _whole("last", last)
    return HistoryTable(read_runs(folder), names, count)


def open_run(arguments: list[str]) -> RunPage:
    """Show one run as its cell did: ``open [name|address]``, the newest by default."""
    expect(arguments, "open [name]", at_most=1)
    found = read_runs()
    if not arguments and not found.runs:
        raise ConfigError(["there is nothing to open: no run has been recorded here"])
    return RunPage(choose_run(arguments[0], found) if arguments else found.runs[0])


def compare_runs(arguments: list[str]) -> Comparison:
    """Show runs beside one another: ``compare A B ...``; with one name, its newest runs."""
    found = read_runs()
    if len(arguments) == 1:
        return Comparison([run for run in found.runs if run.name == arguments[0]][:_COMPARED])
    return Comparison([choose_run(name, found) for name in arguments])


def pin(arguments: list[str]) -> None:
    """Keep runs when old ones are removed: ``pin NAME ...``."""
    _pin(arguments, pinned=True)


def unpin(arguments: list[str]) -> None:
    """Let pinned runs go again: ``unpin NAME ...``."""
    _pin(arguments, pinned=False)


def _pin(arguments: list[str], *, pinned: bool) -> None:
    if not arguments:
        raise ConfigError([f"name the run: %tfos {'pin' if pinned else 'unpin'} NAME"])
    found = read_runs()
    for run in [choose_run(name, found) for name in arguments]:
        try:
            pin_run(run, pinned=pinned)
        except OSError as error:
            raise ConfigError([f"{run.id} cannot be {'pinned' if pinned else 'unpinned'}: {error}"]) from error
        told = "is pinned: %tfos prune keeps it" if pinned else "is not pinned any more"
        print(f"{run.id} {told}")  # noqa: T201


def prune(arguments: list[str]) -> None:
    """Remove old runs: ``prune keep=N days=N [dry_run] [folder=PATH]``; without a limit nothing is removed."""
    usage = "prune [keep=N] [days=N] [dry_run] [folder=PATH]"
    flags, given = _split(arguments, usage, ("keep", "days", "folder"))
    if set(flags) - {"dry_run"}:
        raise ConfigError([f"{flags[0]!r}: the command is %tfos {usage}"])
    keep = _whole("keep", given["keep"]) if "keep" in given else None
    days = _number("days", given["days"]) if "days" in given else None
    done = prune_runs(keep=keep, days=days, dry_run=bool(flags), folder=given.get("folder"))
    print("\n".join(_told(done, limited=keep is not None or days is not None, dry_run=bool(flags))))  # noqa: T201


def _told(done: list[Pruned], *, limited: bool, dry_run: bool) -> list[str]:
    gone = [one for one in done if not one.kept]
    size = format_bytes(sum(one.size_bytes for one in gone))
    verb = "would be removed" if dry_run else "removed"
    lines = [f"{verb}: {one.folder.path} ({format_bytes(one.size_bytes)})" for one in gone]
    lines += [f"{one.folder.path}: {one.kept}" for one in done if one.failed]
    kept = [one.kept for one in done if one.kept]
    reasons = [
        f"{kept.count(why)} {why}" for why in ("pinned", "not ended", "kernel lives", "unreadable") if why in kept
    ]
    stay = format_count(len(kept), "stays", "stay") + (f" ({', '.join(reasons)})" if reasons else "")
    total = f"{format_count(len(gone), 'run')} {verb} ({size}), {stay}"
    hint = "" if limited else "; name a limit to remove old ones: %tfos prune keep=20, or days=30, or both"
    return [*lines, f"{total}{hint}"]


def run_names(*, pinned: bool | None = None) -> list[str]:
    """Return what runs can be called, newest first: labels, and the short form of identifiers."""
    runs = [run for run in read_runs().runs if pinned is None or run.pinned is pinned]
    return list(dict.fromkeys([*(run.name for run in runs), *short_ids(runs).values()]))


def find_named(name: str) -> Run | None:
    """Return the run of the history that a name means, or None; paths are for others.

    Raises
    ------
    ConfigError
        If several runs could be meant.
    """
    found = read_runs()
    return choose_run(name, found) if "/" not in name and may_mean(name, found) else None


def view_events(run: Run) -> TensorBoardView:
    """Return the TensorBoard of a run; raises `ConfigError` if it has left no event files on this machine."""
    folder = run.event_dir
    if "://" not in folder and not Path(folder).is_dir():
        raise ConfigError([f"the run {run.id} has left no event files on this machine: {folder} is not there"])
    return view_folder(folder, run.name)


def print_logs(run: Run, nodes: list[str], lines: int) -> None:
    """Print the last lines of a run's logs, of all nodes or of the one that is named."""
    try:
        text = run.logs(nodes[0] if nodes else None, tail=lines).rstrip() or "nothing was written"
    except KeyError as error:
        raise ConfigError([str(error.args[0])]) from error
    print(f"{text}\n(the last {lines} lines at most; all of them are in {run.run_dir})")  # noqa: T201


def _after_names(_finished: list[str]) -> list[str]:
    return run_names()


COMMANDS = {
    "history": Command(show_history, _after_names),
    "open": Command(open_run, _after_names),
    "compare": Command(compare_runs, _after_names),
    "pin": Command(pin, lambda _: run_names(pinned=False)),
    "unpin": Command(unpin, lambda _: run_names(pinned=True)),
    "prune": Command(prune, lambda _: ["keep=", "days=", "dry_run"]),
}


def _split(arguments: list[str], usage: str, keys: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """Return the plain arguments, and those of the form ``key=value``."""
    plain, given = [], {}
    for argument in arguments:
        key, equals, value = argument.removeprefix("--").partition("=")
        if not equals:
            plain.append(key.replace("-", "_") if argument.startswith("--") else argument)
        elif key in keys and value:
            given[key] = value
        else:
            raise ConfigError([f"{argument}: the command is %tfos {usage}"])
    return plain, given


def _whole(name: str, text: str) -> int:
    if not text.isdecimal():
        raise ConfigError([f"{name}={text}: a whole number, 0 or more, is needed"])
    return int(text)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError([f"{name}={text}: a number is needed"]) from None
