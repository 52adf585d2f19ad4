"""%tfos history, open, compare, pin, unpin and prune; and how %tfos tensorboard and logs find old runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.recorded_runs import write_some
from tfos_lab.cli import main
from tfos_lab.engine.discovery import publisher
from tfos_lab.errors import ConfigError


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    runs = tmp_path / "runs"
    write_some(runs)
    monkeypatch.setenv("TFOS_LAB_RUNS", str(runs))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr("tfos_lab.jupyter.commands.clusters.clusters", list)
    return runs


@pytest.fixture
def run(magics: Any, run_cell: Any, place: Path) -> Any:
    return run_cell


def problem(run: Any, line: str) -> str:
    with pytest.raises(ConfigError) as error:
        run(line)
    return str(error.value)


def test_history_lists_the_runs_of_all_kernels(run: Any, tmp_path: Path) -> None:
    assert "mnist 1f2e" in repr(run("%tfos history"))
    assert [one.name for one in run("%tfos history titanic").runs] == ["titanic"]
    assert len(run("%tfos history mnist last=2").runs) == 2
    assert len(run("%tfos history last=all").runs) == 8
    (tmp_path / "empty").mkdir()
    assert "no run has been recorded" in repr(run(f"%tfos history folder={tmp_path / 'empty'}"))
    assert problem(run, "%tfos history titanik") == "there is no run 'titanik'; did you mean titanic?"
    assert problem(run, "%tfos history last=many") == "last=many: a whole number, 0 or more, is needed"
    assert problem(run, "%tfos history first=2") == (
        "first=2: the command is %tfos history [name ...] [last=N|all] [folder=PATH]"
    )


def test_open_shows_a_run_by_its_name_or_the_newest(run: Any, tmp_path: Path, monkeypatch: Any) -> None:
    assert run("%tfos open titanic").run.id == "titanic-20260104-120000-4e5f"
    assert run("%tfos open").run.id == "mnist-20260106-120000-6c7d"
    assert problem(run, "%tfos open a b") == "too many arguments: the command is %tfos open [name]"
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "none"))
    assert problem(run, "%tfos open") == "there is nothing to open: no run has been recorded here"


def test_compare_takes_names_or_the_newest_runs_of_one(run: Any) -> None:
    assert [one.id[-4:] for one in run("%tfos compare 1f2e titanic").runs] == ["1f2e", "4e5f"]
    assert [one.id[-4:] for one in run("%tfos compare mnist").runs] == ["6c7d", "5a6b", "3c4d", "2a3b", "1f2e"]
    few = "name at least two runs: %tfos compare A B; %tfos history lists them"
    assert problem(run, "%tfos compare titanic") == problem(run, "%tfos compare") == few


def test_pinned_runs_stay_when_old_ones_are_removed(run: Any, place: Path, capsys: Any) -> None:
    run("%tfos pin 1f2e titanic")
    run("%tfos unpin 2a3b")
    run("%tfos prune")
    *pinned, pruned = capsys.readouterr().out.splitlines()
    assert pinned == [
        "mnist-20260101-120000-1f2e is pinned: %tfos prune keeps it",
        "titanic-20260104-120000-4e5f is pinned: %tfos prune keeps it",
        "mnist-20260102-120000-2a3b is not pinned any more",
    ]
    assert pruned == (
        "0 runs removed (0 B), 9 stay (2 pinned, 1 not ended, 2 unreadable); "
        "name a limit to remove old ones: %tfos prune keep=20, or days=30, or both"
    )
    run("%tfos prune keep=1 --dry-run")
    planned = capsys.readouterr().out.splitlines()
    assert planned[-1].startswith("3 runs would be removed (")
    assert f"would be removed: {place}/mnist-20260102-120000-2a3b (" in "\n".join(planned)
    run("%tfos prune keep=1 days=1.5")
    done = capsys.readouterr().out.splitlines()
    assert done[0].startswith(f"removed: {place}/mnist-20260102-120000-2a3b (")
    assert done[1].endswith("8 stay (2 pinned, 1 not ended, 2 unreadable)")
    assert not (place / "mnist-20260102-120000-2a3b").exists()


def test_what_prune_and_pin_do_not_understand_removes_nothing(run: Any, place: Path) -> None:
    usage = "the command is %tfos prune [keep=N] [days=N] [dry_run] [folder=PATH]"
    assert problem(run, "%tfos prune keep=ten") == "keep=ten: a whole number, 0 or more, is needed"
    assert problem(run, "%tfos prune days=soon") == "days=soon: a number is needed"
    assert problem(run, "%tfos prune keep=0 everything") == f"'everything': {usage}"
    assert problem(run, "%tfos prune kep=0") == f"kep=0: {usage}"
    assert problem(run, "%tfos prune days=-1") == "days=-1.0: a number of days, 0 or more, is needed"
    assert problem(run, "%tfos pin") == "name the run: %tfos pin NAME"
    assert problem(run, "%tfos unpin nope") == "there is no run 'nope'; there are mnist, search, titanic"
    assert len(list(place.iterdir())) == 9


def test_logs_of_an_old_run_are_printed_by_its_name(run: Any, place: Path, capsys: Any) -> None:
    run("%tfos logs titanic chief:0")
    assert capsys.readouterr().out == (
        "Epoch 3/3\nloss 0.0601\n"
        f"(the last 200 lines at most; all of them are in {place}/titanic-20260104-120000-4e5f)\n"
    )
    run("%tfos logs 4e5f")
    assert capsys.readouterr().out.startswith("[chief:0] Epoch 3/3\n")
    assert problem(run, "%tfos logs titanic ps:0") == (
        "no node 'ps:0' in the run titanic-20260104-120000-4e5f; there are chief:0, worker:0"
    )


def test_tensorboard_shows_an_old_run_by_its_name(run: Any, place: Path) -> None:
    events = place / "titanic-20260104-120000-4e5f" / "events"
    assert problem(run, "%tfos tensorboard titanic") == (
        f"the run titanic-20260104-120000-4e5f has left no event files on this machine: {events} is not there"
    )
    events.mkdir()
    view = run("%tfos tensorboard 4e5f")
    assert (view.folder, view.name) == (str(events), "titanic")
    publisher.show_folder(str(events)).close()


def test_names_of_runs_are_completed(magics: Any, place: Path) -> None:
    complete = magics.magics_manager.registry["TfosMagics"].commands.complete
    assert {"mnist", "titanic", "1f2e"} <= set(complete(["open"]))
    assert {"mnist", "titanic"} <= set(complete(["tensorboard"]))
    assert "2a3b" in complete(["unpin"])
    assert "1f2e" not in complete(["unpin"])
    assert complete(["prune"]) == ["keep=", "days=", "dry_run"]
    assert {"history", "open", "compare", "pin", "unpin", "prune"} <= set(complete([]))


def test_the_command_line_lists_runs_too(place: Path, capsys: Any) -> None:
    assert main(["history", "titanic"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"1 run in {place}"
    assert main(["history", "--folder", str(place), "--last", "1"]) == 0
    assert "The newest 1 of 8 runs" in capsys.readouterr().out
    assert main(["history", "--all"]) == 0
    assert main(["history", "nope"]) == 1
    assert capsys.readouterr().err == "there is no run 'nope'; there are mnist, search, titanic\n"
