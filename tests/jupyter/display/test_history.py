"""The table of runs, a comparison and an opened run: self-contained HTML with text beside it."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser

import pytest

from tests.support.recorded_runs import curve, failure, write_run, write_some
from tfos_lab.engine.runs.find import find_run
from tfos_lab.engine.runs.read import read_runs
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.display import history_text
from tfos_lab.jupyter.display.history import HistoryTable
from tfos_lab.jupyter.display.history_charts import HUES, line_sample, render_curves
from tfos_lab.jupyter.display.history_compare import Comparison
from tfos_lab.jupyter.display.history_page import RunPage

NASTY = "<script>alert('x')</script>"


class Outline(HTMLParser):
    """The tags of a document, whether they are balanced, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        assert not self._open, f"left open: {self._open}"

    def handle_starttag(self, tag: str, attrs) -> None:
        self.tags.append(tag)
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_some(folder)
    return folder


def html_of(shown) -> str:
    bundle = shown._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    return bundle["text/html"]


def find(place, *names):
    return [find_run(name, place) for name in names]


# ---- the table ------------------------------------------------------------------------------------------------------


def test_the_text_is_a_table_with_a_line_for_each_run(place) -> None:
    lines = repr(HistoryTable(read_runs(place))).splitlines()
    assert lines[0] == f"8 runs in {place}"
    assert " ".join(lines[1].split()) == "run when outcome time loss accuracy inputs nodes on rows files"
    assert re.match(
        r"mnist 6c7d +\S.* ● running +\S+( s)? +0\.\d+ +0\.937 +lr 0.05 · BATCH 128 +2 +local +2,000 +1$", lines[2]
    )
    assert "✗ lost" in lines[3]
    assert lines[8].startswith("mnist 2a3b (pinned)")
    assert lines[10] == "4e5f: worker:0: ValueError: no such label: 11"
    assert [line.partition(": ")[2] for line in lines[11:]] == [
        "run.json is damaged (Input data was truncated)",
        "run.json is not that of a run of tfos_lab (Object missing required field `id`)",
    ]


def test_the_table_has_a_caption_and_headers(place) -> None:
    html = html_of(HistoryTable(read_runs(place)))
    tags = Outline(html).tags
    assert tags.count("caption") == 1
    assert html.count('<th scope="row">') == 8
    assert html.count('<th scope="col"') == 11
    assert 'aria-label="launch 0.10 s, reserve 0.10 s' in html


def test_names_and_a_number_choose_what_is_shown(place) -> None:
    found = read_runs(place)
    assert [run.name for run in HistoryTable(found, ["titanic"]).runs] == ["titanic"]
    table = HistoryTable(found, ["mnist"], 2)
    assert [run.id[-4:] for run in table.runs] == ["6c7d", "5a6b"]
    assert repr(table).startswith(f"The newest 2 of 5 runs in {place}; last=all shows them\n")
    assert len(HistoryTable(found, (), None).runs) == 8


def test_without_runs_there_is_a_sentence(tmp_path) -> None:
    table = HistoryTable(read_runs(tmp_path))
    assert repr(table) == f"no run has been recorded in {tmp_path}: write %%tfos above a cell"
    assert repr(table) in Outline(html_of(table)).text


def test_many_unreadable_ones_are_counted(tmp_path) -> None:
    for number in range(15):
        (tmp_path / f"bad-{number}").mkdir()
        (tmp_path / f"bad-{number}" / "run.json").touch()
    lines = repr(HistoryTable(read_runs(tmp_path))).splitlines()
    assert len(lines) == 1 + 10 + 1
    assert lines[-1] == "and 5 more that cannot be read"


# ---- a comparison ---------------------------------------------------------------------------------------------------


def test_a_comparison_tells_what_differs_and_the_last_metrics(place) -> None:
    lines = repr(Comparison(find(place, "1f2e", "2a3b"))).splitlines()
    assert lines[0].startswith("A  mnist 1f2e · ")
    assert lines[1].startswith("B  mnist 2a3b · ")
    table = [line.split() for line in lines]
    assert ["args.lr", "0.01", "0.1"] in table
    assert ["BATCH", "64", "128"] in table
    assert ["loss", "0.07098", "0.06184"] in table
    assert ["launch", "0.10", "s", "0.10", "s"] in table


def test_a_comparison_draws_each_metric_with_a_curve_for_each_run(place) -> None:
    html = html_of(Comparison(find(place, "1f2e", "2a3b", "3c4d")))
    outline = Outline(html)
    assert html.count("<figure>") == 2
    assert 'aria-label="loss, last values: A 0.07098, B 0.06184, C 2.107"' in html
    assert outline.tags.count("caption") == 3
    assert "How the code of B differs from that of A" in outline.text
    assert "How the code of C" not in outline.text
    assert "<ins>+    # Wider.</ins>" in html


def test_runs_that_are_the_same_are_told_so(tmp_path) -> None:
    for number in range(2):
        write_run(tmp_path, f"same-{number}", reports=[])
    shown = Comparison(find(tmp_path, "same-0", "same-1"))
    assert repr(shown).endswith("Options, inputs and versions are the same.")
    text = Outline(html_of(shown)).text
    assert "Options, inputs and versions are the same." in text
    assert "None of them has reported metrics." in text


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["1f2e"], "name at least two runs: %tfos compare A B; %tfos history lists them"),
        (["1f2e", "1f2e"], "mnist-20260101-120000-1f2e is named twice: a run can be compared with others only"),
        (["1f2e"] * 13, "13 runs are too many to compare at once: name 12 at most"),
    ],
)
def test_what_cannot_be_compared_is_refused(place, names, sentence) -> None:
    with pytest.raises(ConfigError) as error:
        Comparison(find(place, *names))
    assert str(error.value) == sentence


def test_curves_differ_in_more_than_their_colour() -> None:
    samples = [line_sample(number) for number in range(12)]
    assert len({(number % HUES, sample) for number, sample in enumerate(samples)}) == 12
    assert len(set(samples[:HUES])) == HUES


def test_curves_with_gaps_single_points_and_thousands_of_points_are_drawn(tmp_path) -> None:
    nan = float("nan")
    write_run(tmp_path, "gap-1", reports=[{"loss": 1.0}, {"loss": nan}, {"loss": 0.5}])
    write_run(tmp_path, "one-1", reports=[{"loss": 1.0, "alone": 2.0}])
    write_run(tmp_path, "nan-1", reports=[{"loss": nan}])
    write_run(tmp_path, "long-1", reports=curve(0.5, 3000))
    html = render_curves(find(tmp_path, "gap-1", "one-1", "nan-1", "long-1"))
    assert "nan" not in re.sub(r'aria-label="[^"]*"', "", html)
    assert "C nan" in html
    assert html.count("<circle") == 2
    assert len(html) < 40_000


# ---- an opened run --------------------------------------------------------------------------------------------------


def test_an_opened_run_looks_as_its_cell_did_and_tells_more(place) -> None:
    shown = RunPage(find_run("4e5f", place))
    outline = Outline(html_of(shown))
    for text in ("titanic", "worker:0 failed", "Epoch 3/3", "args.lr", "cluster_size", "with ctx.strategy()", "1 file"):
        assert text in outline.text
    assert "%tfos tensorboard titanic-20260104-120000-4e5f" in outline.text
    assert "restarts" not in outline.text
    lines = repr(shown).splitlines()
    assert lines[0] == "✗ titanic: failed · 2/2 nodes done · 3.40 s"
    assert "inputs: args.lr=0.01, BATCH=64" in lines


def test_a_live_and_a_lost_run_can_be_opened(place) -> None:
    assert "Seen at" in repr(RunPage(find_run("6c7d", place)))
    assert "the kernel that ran it has gone" in repr(RunPage(find_run("5a6b", place)))


# ---- all of them ----------------------------------------------------------------------------------------------------


def test_text_of_users_does_not_become_markup(tmp_path) -> None:
    evil = {
        "name": NASTY,
        "inputs": {NASTY: NASTY},
        "reports": [{NASTY: 1.0}, {NASTY: 2.0}],
        "launcher": NASTY,
        "log": NASTY,
        **failure(NASTY, NASTY, NASTY),
    }
    write_run(tmp_path, "evil-1", **evil)
    write_run(tmp_path, "evil-2", **{**evil, "inputs": {}})
    (tmp_path / NASTY.replace("/", "|")).mkdir()
    (tmp_path / NASTY.replace("/", "|") / "run.json").touch()
    runs = find(tmp_path, "evil-1", "evil-2")
    for shown in (HistoryTable(read_runs(tmp_path)), Comparison(runs), RunPage(runs[0])):
        html = html_of(shown)
        assert "script" not in Outline(html).tags
        assert "<script>alert" not in html


def test_the_html_asks_nobody_for_anything(place) -> None:
    runs = find(place, "1f2e", "2a3b")
    for shown in (HistoryTable(read_runs(place)), Comparison(runs), RunPage(runs[0])):
        for outside in ("http:", "https:", "url(", "@import", "src=", "<link", "<script"):
            assert outside not in html_of(shown)


def test_moments_are_written_as_people_do() -> None:
    now_s = time.mktime((2026, 3, 14, 15, 9, 26, 0, 0, -1))
    day_s = 86_400
    assert history_text.when_text(now_s - 3600, now_s) == "today 14:09"
    assert history_text.when_text(now_s - 2 * day_s, now_s) == "12 Mar 15:09"
    assert history_text.when_text(now_s - 100 * day_s, now_s) == "4 Dec 2025 15:09"


def test_identifiers_are_as_short_as_they_can_be(tmp_path) -> None:
    for name in ("a-1f2e", "b-1f2e", "c-3c4d"):
        write_run(tmp_path, name)
    ids = history_text.short_ids(read_runs(tmp_path).runs)
    assert ids == {"a-1f2e": "a-1f2e", "b-1f2e": "b-1f2e", "c-3c4d": "3c4d"}
