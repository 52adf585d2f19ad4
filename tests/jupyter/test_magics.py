"""%tfos, and loading the magics."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.jupyter.scripted import ScriptedCluster
from tfos_lab.engine.doctor.finding import Finding
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.magics import load_ipython_extension
from tfos_lab.jupyter.options.table import OPTIONS


@pytest.fixture
def run(magics: Any, run_cell: Any) -> Any:
    return run_cell


def problem(run: Any, line: str) -> str:
    with pytest.raises(ConfigError) as error:
        run(line)
    return str(error.value)


def test_loading_prints_nothing_and_may_be_done_twice(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    load_ipython_extension(shell)
    matchers = len(shell.Completer.custom_matchers)
    load_ipython_extension(shell)
    assert len(shell.Completer.custom_matchers) == matchers
    assert capsys.readouterr() == ("", "")


def test_loading_starts_warming(shell: Any, cold: list[str]) -> None:
    load_ipython_extension(shell)
    assert cold == ["in background"]


def test_warm_prints_where(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run("%tfos warm")
    assert capsys.readouterr().out == "warming on this machine: the next cell there starts at once\n"


def test_warm_shows_fork_servers_that_outlive_kernels_and_stop_ends_them(
    run: Any, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("TFOS_LAB_FORK_SERVER", "user")
    monkeypatch.setattr("tfos_lab.jupyter.commands.tools.warm_servers", lambda: ["one"])
    monkeypatch.setattr("tfos_lab.jupyter.commands.tools.describe", lambda servers: f"{servers} are warm")
    monkeypatch.setattr("tfos_lab.jupyter.commands.tools.end_warm_servers", lambda: "ended: one")
    run("%tfos warm")
    run("%tfos warm stop")
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("warming on this machine")
    assert others == ["['one'] are warm", "ended: one"]
    assert "'start': the command is %tfos warm [stop]" in problem(run, "%tfos warm start")


def test_doctor_prints_its_findings(run: Any, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr("tfos_lab.jupyter.commands.tools.examine", lambda: [Finding("Java", ok=True, found="17")])
    run("%tfos doctor")
    assert capsys.readouterr().out == "✓ Java  17\n\nAll is well.\n"


def test_pack_prints_the_settings_that_use_the_archive(
    run: Any, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    asked: list[tuple[str, ...]] = []

    def pack(*names: str) -> Any:
        asked.append(names)
        return SimpleNamespace(describe=lambda: "the settings")

    monkeypatch.setattr("tfos_lab.jupyter.commands.tools.pack", pack)
    run("%tfos pack")
    run("%tfos pack mine.tar.gz")
    assert capsys.readouterr().out == "the settings\nthe settings\n"
    assert asked == [(), ("mine.tar.gz",)]


def test_the_extension_loads_by_its_name(shell: Any, run_cell: Any) -> None:
    shell.extension_manager.loaded.discard("tfos_lab")
    run_cell("%load_ext tfos_lab")
    assert shell.find_cell_magic("tfos") is not None


def test_the_help_documents_every_option(magics: Any) -> None:
    text = magics.find_cell_magic("tfos").__doc__
    for option in OPTIONS:
        assert f"{option.name} " in text
        assert option.meaning in text
    assert text.startswith("Run this cell on a cluster: ``%%tfos cluster_size=4``.")


def test_braces_and_dollars_of_the_line_are_not_expanded(run: Any, scripted: Any) -> None:
    started = scripted(ScriptedCluster())
    run("%%tfos args={'a': '$HOME {x}'}\n1")
    assert started[0]["args"] == {"a": "$HOME {x}"}


def test_an_empty_cell_is_refused_with_a_sentence(run: Any) -> None:
    assert problem(run, "%%tfos\n\n") == "the cell is empty: write below %%tfos what each node is to do"


def test_status_lists_the_clusters(run: Any, scripted: Any) -> None:
    scripted(ScriptedCluster(), ScriptedCluster("other", forever=True))
    assert repr(run("%tfos")) == "no cluster yet: write %%tfos above a cell"
    assert "no cluster yet" in run("%tfos")._repr_html_()
    run("%%tfos\n1")
    run("%%tfos name=other background\n1")
    table = run("%tfos")
    lines = repr(table).splitlines()
    assert lines[0].split() == ["name", "state", "nodes", "progress", "on", "time", "logs"]
    assert lines[1].split()[:3] == ["cluster", "✓", "done"]
    assert lines[2].split()[:3] == ["other", "●", "running"]
    assert "<td" in table._repr_html_()
    assert repr(run("%tfos status")).splitlines()[0] == lines[0]


def test_stop_stops_the_named_cluster_or_all(run: Any, scripted: Any) -> None:
    clusters = [ScriptedCluster(name, forever=True) for name in ("a", "b", "c")]
    scripted(*clusters)
    assert "no cluster yet" in repr(run("%tfos stop"))
    for name in ("a", "b", "c"):
        run(f"%%tfos name={name} background\n1")
    assert problem(run, "%tfos stop") == "several clusters run (a, b, c): name one, or write all"
    assert problem(run, "%tfos stop bb") == "no cluster 'bb' is running; did you mean b?"
    assert problem(run, "%tfos stop xyz") == "no cluster 'xyz' is running; there are a, b, c"
    run("%tfos stop b")
    assert [cluster.ended for cluster in clusters] == [False, True, False]
    run("%tfos stop all")
    assert all(cluster.ended for cluster in clusters)
    assert problem(run, "%tfos stop a") == "no cluster is running"


def test_stop_needs_no_name_if_only_one_runs(run: Any, scripted: Any) -> None:
    cluster = ScriptedCluster("only", forever=True)
    scripted(cluster)
    run("%%tfos name=only background\n1")
    assert "■ stopped" in repr(run("%tfos stop"))
    assert cluster.ended


def test_logs_prints_what_nodes_wrote(run: Any, scripted: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scripted(ScriptedCluster("a"), ScriptedCluster("b"))
    assert problem(run, "%tfos logs") == "there are no logs: no cluster has run yet"
    run("%%tfos name=a\n1")
    run("%%tfos name=b\n1")
    capsys.readouterr()
    for line, message in [
        ("%tfos logs", "log of all"),
        ("%tfos logs a", "log of all"),
        ("%tfos logs worker:0", "log of worker:0"),
        ("%tfos logs a chief:0", "log of chief:0"),
    ]:
        run(line)
        assert capsys.readouterr().out.startswith(
            f"{message}, last 200\n(the last 200 lines at most; all of them are in "
        )
    assert problem(run, "%tfos logs c") == "no cluster 'c' is there; there are a, b"
    assert problem(run, "%tfos logs a ps:0") == "the cluster 'a' has no node 'ps:0'; there are chief:0, worker:0"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%tfos stp", "%tfos has no command 'stp'; did you mean stop?"),
        ("%tfos cluster_size=4", "options belong to a cell: write %%tfos cluster_size=4 and the code below it"),
        ("%tfos --tensorboard", "options belong to a cell: write %%tfos --tensorboard and the code below it"),
        ("%tfos status now", "too many arguments: the command is %tfos status"),
        ("%tfos export", "name the file to write: %tfos export FILE.py"),
        ("%tfos export x.py", "there is nothing to export: run a %%tfos cell first"),
        ("%tfos logs 'a", "%tfos logs 'a: No closing quotation"),
    ],
)
def test_an_unknown_command_is_refused_with_a_suggestion(run: Any, line: str, message: str) -> None:
    assert problem(run, line) == message


def test_export_writes_the_last_cell(
    run: Any, scripted: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted(ScriptedCluster())
    run("base = 40")
    run("%%tfos cluster_size=2 args={'x': 2}\nbase + args['x']")
    capsys.readouterr()
    path = tmp_path / "train.py"
    run(f"%tfos export {path}")
    assert capsys.readouterr().out == f"wrote {path}; run it with: spark-submit {path}\n"
    text = path.read_text()
    assert "base = 40" in text
    assert "tfos_lab.run(map_fun, {'x': 2}, spark=spark, cluster_size=2)" in text


def test_the_last_cell_is_exported_after_the_numbers_have_begun_anew(
    magics: Any, run: Any, scripted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(ScriptedCluster(), ScriptedCluster())
    number = magics.execution_count
    run("1")
    run("%%tfos\n'before'")
    monkeypatch.setattr(magics, "execution_count", number)  # as %reset does
    run("%%tfos\n'after'")
    run(f"%tfos export {tmp_path / 'train.py'}")
    assert "'after'" in (tmp_path / "train.py").read_text()
