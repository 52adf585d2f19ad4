"""Runs of all kernels: ``%tfos history``, of one run and of several; logs and events of old ones."""

from __future__ import annotations

import re
import shlex

import pytest
from IPython.core.completer import provisionalcompleter

import tfos_lab
from tests.support.outline import Outline
from tests.support.recorded_runs import failure, write_run, write_some
from tfos_lab.cli import main
from tfos_lab.errors import ConfigError

NASTY = "<script>alert('x')</script>"


def html_of(shown) -> str:
    bundle = shown._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    return bundle["text/html"]


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A folder without runs, where they are looked for; nowhere else are any."""
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


@pytest.fixture
def place(empty):
    """The folder, with runs of every kind."""
    write_some(empty)
    return empty


# ---- the table ------------------------------------------------------------------------------------------------------


def test_history_is_a_table_with_a_line_for_each_run_the_newest_first(place, run):
    shown = run("%tfos history")
    lines = repr(shown).splitlines()
    assert lines[0] == f"8 runs in {place}"
    assert " ".join(lines[1].split()) == "run when outcome time loss accuracy inputs nodes on rows files"
    assert re.match(
        r"mnist 6c7d +\S.* ● running +\S+( s)? +0\.\d+ +0\.937 +lr 0.05 · BATCH 128 +2 +local +2,000 +1$", lines[2]
    )
    assert "✗ lost" in lines[3]
    assert lines[8].startswith("mnist 2a3b ")
    assert lines[10] == "4e5f: worker:0: ValueError: no such label: 11"
    assert [line.partition(": ")[2] for line in lines[11:]] == [
        "run.json is damaged (Input data was truncated)",
        "run.json is not that of a run of tfos_lab (Object missing required field `version`)",
    ]
    html = html_of(shown)
    assert html.count('<th scope="row">') == 8
    assert html.count('<th scope="col"') == 11
    told = Outline(html).text
    for text in ("launch 0.10 s, reserve 0.10 s", "args.lr 0.1", "%tfos history 2a3b"):
        assert text in html or text in told, "where a row unfolds"


def test_a_long_name_of_a_metric_pushes_no_column_out_of_sight(empty, run):
    write_run(empty, reports=[{"a_very_long_name_of_it": 1.0, "loss": 0.5}])
    assert 'tfos-long">a_<wbr>very_<wbr>long_<wbr>name_<wbr>of_<wbr>it</th>' in html_of(run("%tfos history"))


def test_tags_and_notes_are_in_the_history_and_find_runs(place, run, problem):
    tfos_lab.runs()["1f2e"].tag("good", NASTY).tag("good").note(f"as in the paper {NASTY}")
    tfos_lab.runs()["3c4d"].tag("bad").untag("bad")
    found = tfos_lab.runs()["1f2e"]
    assert found.tags == ("good", NASTY)
    assert found.note_text == f"as in the paper {NASTY}"
    table = tfos_lab.runs()
    assert table.loc[found.id, ["tags", "note"]].tolist() == [["good", NASTY], found.note_text]
    assert run("%tfos history good").run.id == found.id
    tfos_lab.runs()["2a3b"].tag("good")
    shown = run("%tfos history good")
    assert [one.id[-4:] for one in shown.runs] == ["2a3b", "1f2e"]
    assert "mnist 1f2e #good" in repr(shown)
    assert f"1f2e: as in the paper {NASTY}" in repr(shown)
    outline = Outline(html_of(shown))
    assert "as in the paper" in outline.text
    assert outline.tags.count("script") == 1, "our own, which sorts the table"
    assert problem("%tfos history bad").startswith("there is no run 'bad'")
    for call, message in [
        (lambda: found.tag(["good", "bad"]), r"tag\(\['good', 'bad'\]\): words are needed"),
        (lambda: found.tag("paper", ""), r"tag\(''\): words are needed"),
        (lambda: found.note(None), r"note\(None\): a text is needed"),
    ]:
        with pytest.raises(ConfigError, match=message):
            call()
    assert found.tags == ("good", NASTY)
    (found.run_dir / "notes.json").write_text("{")
    assert tfos_lab.runs()["1f2e"].tags == ()
    found.run_dir.rename(place / "gone")
    with pytest.raises(ConfigError, match=r"tags and notes of mnist-.*-1f2e cannot be written: No such file"):
        found.tag("late")


# ---- one run, and several -------------------------------------------------------------------------------------------


def test_a_run_whose_loss_is_nan_says_so_below_its_line(empty, run):
    write_run(empty, alarm="loss is NaN since step 12")
    shown = run("%tfos history")
    assert '<tr class="tfos-detail"' in html_of(shown)
    assert "loss is NaN since step 12" in Outline(html_of(shown)).text
    assert "loss is NaN since step 12" in repr(shown)
    html = html_of(run("%tfos history"))
    assert html.index("loss is NaN since step") < html.index("All of it"), "above what unfolds"


def test_what_a_record_cannot_tell_from_nan_is_not_called_so(empty, run):
    for name in ("mnist-1-aaaa", "mnist-2-bbbb"):
        write_run(empty, name, reports=[{"loss": 1.0}, {"loss": float("inf")}])
    for command in ("history", "history aaaa bbbb"):
        shown = run(f"%tfos {command}")
        assert "not finite" in repr(shown)
        assert "NaN" not in repr(shown)
        assert "NaN" not in Outline(html_of(shown)).text


def test_an_opened_run_looks_as_its_cell_did_and_tells_more(place, run, problem, monkeypatch, tmp_path):
    shown = run("%tfos history titanic")
    outline = Outline(html_of(shown))
    for text in ("titanic", "worker:0 failed", "Epoch 3/3", "args.lr", "cluster_size", "with ctx.strategy()", "1 file"):
        assert text in outline.text
    assert "%tfos logs titanic-20260104-120000-4e5f" in outline.text
    assert "restarts" not in outline.text, "only options that differ from their defaults"
    lines = repr(shown).splitlines()
    assert lines[0] == "✗ titanic: failed · 2/2 nodes done · 3.40 s"
    assert "inputs: args.lr=0.01, BATCH=64" in lines
    assert "Seen at" in repr(run("%tfos history 6c7d"))
    assert "the kernel that ran it has gone" in repr(run("%tfos history 5a6b"))
    assert run("%tfos history 7e8f.1").run.id == "search-20260107-120000-7e8f.1"
    assert [one.name for one in run("%tfos history m*").runs] == ["mnist"] * 5
    assert problem("%tfos history nope") == "there is no run 'nope'; there are mnist, search, titanic"
    assert problem("%tfos history last=ten") == "last=ten: a whole number, or all, is needed"
    usage = "the command is %tfos history [last=N|all] [folder=PATH] or %tfos history A or %tfos history A B ..."
    assert problem("%tfos history keep=1") == f"keep=1: {usage}"
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "none"))
    assert problem("%tfos export run.html") == "there is nothing to export: no run has been recorded here"


def test_a_comparison_tells_what_differs_and_draws_a_curve_for_each_run(place, run):
    shown = run("%tfos history 1f2e 2a3b 3c4d")
    lines = repr(shown).splitlines()
    assert lines[0].startswith("A  mnist 1f2e · ")
    table = [line.split() for line in lines]
    for row in (
        ["args.lr", "0.01", "0.1", "1"],
        ["BATCH", "64", "128", "128"],
        ["loss", "0.07098", "0.06184", "2.107"],
    ):
        assert any(line[: len(row)] == row for line in table), row
    html = html_of(shown)
    outline = Outline(html)
    assert html.count("<figure ") == 2
    assert 'aria-label="loss: A 0.07098, B 0.06184, C 2.107"' in html
    assert html.count('class="tfos-look-log"') == 1, "as a cell's curves have it"
    assert "How the code of B differs from that of A" in outline.text
    assert "How the code of C" not in outline.text
    assert "<ins>+    # Wider.</ins>" in html
    shown = run("%tfos history mnist")
    assert [one.id[-4:] for one in shown.runs] == ["6c7d", "5a6b", "3c4d", "2a3b", "1f2e"]
    assert html_of(shown).count("<figure ") == 10, "two curves where a row unfolds"


def test_text_of_users_does_not_become_markup_and_no_page_asks_anybody(empty, run):
    evil = {
        "name": NASTY,
        "inputs": {NASTY: NASTY},
        "reports": [{NASTY: 1.0}, {NASTY: 2.0}],
        "launcher": NASTY,
        "log": NASTY,
        **failure(NASTY, NASTY, NASTY),
    }
    write_run(empty, "evil-1", **evil)
    write_run(empty, "evil-2", **{**evil, "inputs": {}})
    (empty / NASTY.replace("/", "|")).mkdir()
    (empty / NASTY.replace("/", "|") / "run.json").touch()
    for command in ("history", "history evil-1 evil-2", "history evil-1"):
        # Our own script sorts the table, and knows nothing but its element.
        html = re.sub(r"<script>\(\(TFOS_OPTIONS\) => .*\)\(\{\"element\": \"tfos-history-\d+-\d+\"\}\)</script>$", "",
                      html_of(run(f"%tfos {command}")))  # fmt: skip
        assert "script" not in Outline(html).tags
        for outside in ("<script", "http:", "https:", "url(", "@import", "src=", "<link"):
            assert outside not in html


def test_names_of_runs_are_completed(place, run, shell):
    def tab(text):
        with provisionalcompleter():
            return [found.text for found in shell.Completer.completions(text, len(text))]

    offered = {text: set(tab(f"%tfos {text} ")) for text in ("history", "tensorboard")}
    assert {"mnist", "titanic", "1f2e"} <= offered["history"]
    assert {"mnist", "titanic"} <= offered["tensorboard"]


# ---- logs, event files, the command line ----------------------------------------------------------------------------


def test_logs_of_an_old_run_are_printed_by_its_name(place, said, problem):
    assert said("%tfos logs titanic chief:0") == [
        *("Epoch 3/3", "loss 0.0601"),
        f"(the last 200 lines at most; all of them are in {place}/titanic-20260104-120000-4e5f)",
    ]
    assert said("%tfos logs 4e5f")[0] == "[chief:0] Epoch 3/3"
    assert said(f"%tfos logs {place}/titanic-20260104-120000-4e5f")[0] == "[chief:0] Epoch 3/3"
    # With clusters of this process, they could be meant, too.
    wrong = r"there is no (run|cluster, run or node called) 'titnic'; did you mean titanic\?"
    assert re.fullmatch(wrong, problem("%tfos logs titnic"))
    assert problem("%tfos logs titanic ps:0") == (
        "no node 'ps:0' in the run titanic-20260104-120000-4e5f; there are chief:0, worker:0"
    )


def test_tensorboard_shows_an_old_run_or_any_folder_by_a_link_without_a_jupyter_server(
    place, run, problem, tmp_path, monkeypatch
):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    events = place / "titanic-20260104-120000-4e5f" / "events"
    assert problem("%tfos tensorboard titanic") == (
        f"the run titanic-20260104-120000-4e5f has left no event files on this machine: {events} is not there"
    )
    assert "%tfos tensorboard" not in repr(run("%tfos history titanic"))
    for made in (events, events / "train"):
        made.mkdir()
        assert "\nlogs: %tfos logs titanic-20260104-120000-4e5f" in repr(run("%tfos history titanic"))
    (events / "train/events.out.tfevents.1.host.2.v2").touch()
    both = "TensorBoard and logs: %tfos tensorboard titanic-20260104-120000-4e5f · %tfos logs "
    assert both in repr(run("%tfos history titanic"))
    evil = tmp_path / "<b>" / "</script><script>alert(1)<"
    evil.mkdir(parents=True)
    for name, folder in (("4e5f", events), (str(evil), evil)):
        bundle = run(f"%tfos tensorboard {name!r}")._repr_mimebundle_()
        assert re.search(
            r": http://127\.0\.0\.1:\d+/\S+ on this machine, while this program lives; ", bundle["text/plain"]
        )
        assert bundle["text/plain"].endswith(f"then tensorboard --logdir {shlex.quote(str(folder))}")
        page = bundle["text/html"]
        assert page.count("<script>") == page.count("</script>") == 1
        assert 'target="_blank" rel="noopener noreferrer">TensorBoard of <b>' in page
        assert "opens in browsers on this machine while this kernel lives" in page
    again = run("%tfos tensorboard 4e5f")
    other = run("%tfos tensorboard 4e5f")
    assert again.run_id == other.run_id
    ids = {re.search(r'id="([^"]+)"', one._repr_mimebundle_()["text/html"])[1] for one in (again, other)}
    assert len(ids) == 2, "two outputs do not share an element"


def test_the_command_line_lists_runs_too(place, capsys):
    assert main(["history", "titanic"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"1 run in {place}"
    assert main(["history", "--folder", str(place), "--last", "1"]) == 0
    assert "The newest 1 of 8 runs" in capsys.readouterr().out
    assert main(["history", "--all"]) == 0
    assert main(["history", "nope"]) == 1
    assert capsys.readouterr().err == "there is no run 'nope'; there are mnist, search, titanic\n"
