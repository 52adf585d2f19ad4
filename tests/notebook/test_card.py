"""What a cell shows of its cluster: text, the picture that stays in the notebook, and what a page gets to draw.

What whole runs look like stands in ``tests/golden``; here are the rules.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from importlib import resources
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfos_lab
from tests.support.fake_cluster import FakeCluster
from tests.support.outline import Outline, words
from tests.support.recorded_runs import this_process, write_run
from tests.support.staged_views import COMPUTE, make_straggle, staged_cluster
from tfos_lab.core.messages import NodeActivity
from tfos_lab.driver.record.format import CodeRecord
from tfos_lab.driver.state.events import (
    ClusterView,
    FeedView,
    MetricsReported,
    NodeView,
    RunFacts,
    SearchFacts,
    UsageView,
)
from tfos_lab.notebook.display.card import NodeStacks, make_bundle, render_text, traits
from tfos_lab.notebook.display.charts import render_charts
from tfos_lab.notebook.display.series import SeriesBook, SeriesPoints, all_series, series_before
from tfos_lab.notebook.display.table import LiveTable, render_table

DASHBOARD = Path(__file__).parents[2] / "extensions/dashboard"
NASTY = "<script>alert('x')</script>"


def view_of(state: str, *node_states: str, **fields: object) -> ClusterView:
    """Return the view of a cluster whose nodes are in the given states."""
    view = FakeCluster(nodes=len(node_states)).view()
    nodes = tuple(
        dataclasses.replace(node, state=node_state) for node, node_state in zip(view.nodes, node_states, strict=True)
    )
    return dataclasses.replace(view, state=state, nodes=nodes, **fields)


def of_runs(state: str, *runs: tuple[str, RunFacts], **fields: object) -> ClusterView:
    """Return the view of independent runs."""
    view = view_of(state, *(node_state for node_state, _ in runs), of_runs=True, **fields)
    nodes = tuple(dataclasses.replace(node, run=facts) for node, (_, facts) in zip(view.nodes, runs, strict=True))
    return dataclasses.replace(view, nodes=nodes)


def bundle_of(cluster: FakeCluster, **options: object) -> dict[str, str]:
    return make_bundle(cluster.view(), lambda node, lines: cluster.logs(node, tail=lines), "/runs/1", **options)


def drawn(view: ClusterView, reports: list[MetricsReported] = ()) -> str:
    return make_bundle(view, lambda _node, _lines: "", None, reports)["text/html"]


def sent(view: ClusterView) -> dict:
    """What a page gets."""
    table = LiveTable()
    made = traits(view, view.started_s + 12, table, "/runs/1")
    return {**made, **made["view"]}


# ---- whatever it shows ----------------------------------------------------------------------------------------------


@pytest.fixture
def nasty() -> FakeCluster:
    """A cluster all of whose text tries to become markup."""
    cluster = FakeCluster(name=f"mnist {NASTY}")
    for node in cluster.nodes:
        cluster.change(node, state="stopped", host=f"host {NASTY}", step=3, total_steps=10, metrics={f"m{NASTY}": 0.5})
        cluster.write(node, f"{node} says {NASTY}\n")
    cluster.change("worker:1", state="failed", detail=f"ValueError: {NASTY}")
    cluster.note(f"a note {NASTY}")
    cluster.set_state("failed", f"worker:1 failed {NASTY}")
    return cluster


def test_text_of_users_and_nodes_does_not_become_markup(nasty):
    report = MetricsReported(time_s=0, node="chief:0", step=1, total_steps=2, metrics={f"loss {NASTY}": 0.5})
    stacks = (NodeStacks("worker:1", NASTY, 0.0),)
    html = bundle_of(nasty, reports=[report], stacks=stacks, error=NASTY, link_of=lambda _: f'"{NASTY}')["text/html"]
    outline = Outline(html)
    assert "script" not in outline.tags
    assert "<script>alert" not in html
    assert len(html) < 30_000, "it is saved with every cell"
    # Hosts, output, metric's column, name, reason, detail, note, chart, stacks, error.
    assert outline.text.count("alert('x')") >= 4 + 4 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1


@given(st.text(min_size=1).filter(str.strip))
def test_no_text_becomes_markup(text):
    def head(name: str) -> Outline:
        return Outline(sent(view_of("running", "running", name=name, spark_ui=f"http://{name}"))["head"])

    plain, given = head("a"), head(text)
    assert given.tags == plain.tags
    assert [one.keys() for one in given.attributes] == [one.keys() for one in plain.attributes]
    assert text.strip() in given.texts
    values = [value for one in given.attributes for value in one.values()]
    assert {f"http://{text}", f"Stop {text}"} <= {*values}


def test_it_asks_nobody_for_anything(nasty):
    html = bundle_of(nasty)["text/html"]
    assert [word for word in ("http:", "https:", "url(", "@import", "src=", "<link") if word in html] == []


def test_scripts_and_style_sheets_ask_nobody_and_make_html_of_drawn_parts_alone():
    folder = resources.files("tfos_lab.notebook.display") / "static"
    for script in ("dashboard.js", "seen_note.js", "tensorboard_frame.js"):
        text = (folder / script).read_text()
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "https://", "import("):
            assert word not in text, (script, word)
        # Of what Python has drawn, and of what the server says where TensorBoard cannot be shown.
        assert text.count("parseFromString") == (script != "seen_note.js"), script
        assert set(re.findall(r"http://[^\"]+", text)) <= {"http://www.w3.org/2000/svg"}
    for sheet in ("dashboard.css", "summary.css"):
        assert not re.search(r"@import|url\(", (folder / sheet).read_text())


def test_every_state_has_its_sign_word_and_colour():
    view = view_of("running", "running")
    theme = (DASHBOARD / "style/theme.css").read_text()
    for state in type(view.nodes[0].state):
        shown = drawn(dataclasses.replace(view, nodes=(dataclasses.replace(view.nodes[0], state=state),)))
        [cell] = re.findall(rf'<td[^>]*><span[^>]*data-state="{state.value}"[^>]*>(.*?)</span></td>|$^', shown) or [""]
        assert not cell or re.sub(r"<[^>]*>", "", cell) == f"{state.look.sign} {state.value}"
        assert f"{state.look.sign}</span> {state.value}" in shown
        assert f"--tfos-{state.look.tone}:" in theme
    for state in type(view.state):
        assert f"{state.look.sign}</span> {state.value}" in drawn(dataclasses.replace(view, state=state))


def test_sixty_four_nodes_have_lines_of_their_own():
    cluster = FakeCluster(nodes=64)
    reports = [
        MetricsReported(time_s=step, node=node, step=step, total_steps=None, metrics={"loss": 1.0 * step + place})
        for place, node in enumerate(cluster.nodes)
        for step in range(2)
    ]
    html = drawn(cluster.view(), reports)
    looks = re.findall(r'class="(tfos-hue\d+)" data-dash="(\d+)"', html)
    assert len(set(looks)) == len(looks) == 64
    assert all(one[1] != other[1] for one, other in itertools.pairwise(looks)), "neighbours differ not by colour alone"
    assert len(set(re.findall(r'stroke-dasharray="([^"]*)"', html))) == 3, "beside lines without dashes"


# ---- what a page gets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "nodes", "text"),
    [
        ("launching", ["waiting"] * 4, "0/4 nodes reserved"),
        ("reserving", ["reserved", "reserved", "waiting", "waiting"], "2/4 nodes reserved"),
        ("starting", ["running", "importing", "starting", "importing"], "1/4 nodes running"),
        ("running", ["serving", "running", "done", "running"], "3/4 nodes running, 1 done"),
        ("done", ["done", "done", "stopped", "done"], "3/4 nodes done"),
        ("failed", ["failed", "stopped", "stopped", "lost"], "0/4 nodes done"),
    ],
)
def test_the_headline_counts_what_matters_now(state, nodes, text):
    view = sent(view_of(state, *nodes))
    took = "12.0 s" if state in ("done", "failed") else "12 s"
    assert f" {text} · {took} " in words(view["head"])
    assert json.loads(json.dumps(view, allow_nan=False)) == view


def test_independent_runs_and_trials_are_counted_by_what_has_become_of_them():
    states = ["done", "done", "failed", "lost", "running", "waiting", "stopped"]
    view = of_runs("running", *((state, RunFacts(going=state == "running")) for state in states))
    assert " 2 of 7 done, 2 failed, 1 running, 1 stopped · " in words(sent(view)["head"])
    assert words(sent(view)["course"]).endswith("5 of 7 ended · 1 waits for a slot")
    assert 'aria-valuenow="71"' in sent(view)["course"]
    trials = [("done", RunFacts(best=0.125)), ("stopped early", RunFacts()), ("running", RunFacts(going=True))]
    search = of_runs("running", *trials, search=SearchFacts("loss", 0.125, "trial 0: lr=0.1"))
    told = "1 of 3 done, 1 stopped early, 1 running · best loss 0.125 (trial 0: lr=0.1)"
    assert told in words(sent(search)["head"])
    assert " Trial Best loss State " in words(sent(search)["nodes"])


def test_progress_is_in_steps_or_else_in_rows_and_known_only_with_a_total():
    view = view_of("running", "running")
    feed = FeedView(rows={"chief:0": 30}, partitions=1, size_bytes=1, epochs=2)
    whole = dataclasses.replace(feed, complete=True)

    def progress(*feeds: FeedView, **fields: object) -> float | None:
        node = dataclasses.replace(view.nodes[0], **fields)
        drawn = sent(dataclasses.replace(view, nodes=(node,), feeds=feeds))["nodes"]
        return next((int(part) / 100 for part in re.findall(r'aria-valuenow="(\d+)"', drawn)), None)

    assert progress() is progress(step=5) is None
    assert (progress(step=5, total_steps=20), progress(step=25, total_steps=20)) == (0.25, 1.0)
    assert progress(feed, rows=30) is None, "more rows may come"
    assert progress(whole, rows=30) == 0.5
    assert progress(whole, rows=61) is None, "the function reads them in more epochs than the feed knows of"
    assert progress(whole, rows=30, step=1, total_steps=10) == 0.1
    assert progress(whole, dataclasses.replace(whole, number=1), rows=30) == 0.25, "both are to be read"
    assert progress(dataclasses.replace(whole, kind="stream"), rows=30) is None, "a stream has no end"


def test_spark_s_pages_are_linked_if_their_address_is_one_of_the_web():
    for address, links in (("", []), ("javascript:alert(1)", []), ("http://10.0.0.1:4040", ["noopener noreferrer"])):
        parts = Outline(sent(view_of("running", "running", spark_ui=address))["head"])
        assert [given["rel"] for given in parts.attributes if given.get("href") == address] == links


def test_a_late_heartbeat_is_marked_while_a_node_goes_on():
    view = view_of("running", "running", "running", "done")
    seen_s = (view.started_s - 30, view.started_s + 12, view.started_s - 30)
    nodes = [dataclasses.replace(node, last_heartbeat_s=s) for node, s in zip(view.nodes, seen_s, strict=True)]
    html = sent(dataclasses.replace(view, nodes=tuple(nodes)))["nodes"]
    found = re.findall('tfos-heartbeat( tfos-late)?">([^<]*)<', html)
    assert found == [(" tfos-late", "42 s ago"), ("", "now"), ("", "")]


def test_of_many_the_worst_come_first_and_all_are_counted():
    troubled = {
        500: {"state": "lost"},
        40: {"hung": "no step for 40 s"},
        77: {"activity": NodeActivity(slower=1.5)},
        78: {"activity": NodeActivity(slower=3.0)},
        900: {"state": "failed"},
    }
    nodes = (
        NodeView(f"worker:{n}", "worker", n, n == 0, **{"state": "running", "step": n % 5, **troubled.get(n, {})})
        for n in range(1000)
    )
    view = sent(dataclasses.replace(view_of("running", "running"), nodes=tuple(nodes)))
    names = [name.partition(":")[2] for name in view["hues"]]
    assert names[:6] == ["900", "500", "40", "78", "77", "0"]
    assert len(names) == 5 + 12
    told = words(view["nodes"])
    assert re.search(r"995 nodes.*● running.*0 – 4.*983 more are not listed", told)
    few = words(sent(view_of("running", *["running"] * 64))["nodes"])
    assert "all 64 nodes" in few
    assert "not listed" not in few, "of a few, all have a row"


def test_of_many_that_are_lost_all_are_counted():
    view = view_of("running", *["lost"] * 70, *["running"] * 30)
    told = words(sent(view)["nodes"])
    assert "46 more are not listed: 46 lost" in told
    assert "46 more are not listed: 46 lost" in render_text(view)
    assert "30 nodes" in told
    lost = tuple(NodeView(f"worker:{n}", "worker", n, n == 99, state="lost", step=n) for n in range(100))
    listed = sent(dataclasses.replace(view, nodes=lost))["hues"]
    assert sorted(listed) == sorted(f"worker:{n}" for n in [*range(24), 99]), "the chief has a row, whatever it does"


# ---- what nodes have printed ----------------------------------------------------------------------------------------


def in_sight(html: str) -> str:
    """The printed text that is visible without a click."""
    html = re.sub(r"<details.*?</details>", "", html, flags=re.DOTALL)
    return "|".join(
        re.sub(r"<[^>]*>", "", said) for said in re.findall(r'<div class="tfos-said.*?</div>', html, re.DOTALL)
    )


def printed(nodes: int, lines: int, **options: object) -> str:
    cluster = FakeCluster(nodes=nodes)
    for node in cluster.nodes:
        cluster.write(node, "".join(f"line {number} of {node}\n" for number in range(lines)))
    return bundle_of(cluster, **options)["text/html"]


def test_short_output_is_in_sight_and_long_output_is_folded_with_its_last_lines():
    seen = in_sight(printed(2, 2))
    assert re.findall(r"line (\d) of (\w+:0)", seen) == [
        *(("0", "chief:0"), ("1", "chief:0"), ("0", "worker:0"), ("1", "worker:0"))
    ]
    assert in_sight(printed(1, 1)) == "line 0 of chief:0\n", "a single node is not named"
    html = printed(2, 1000)
    assert in_sight(html) == ""
    assert "last 20 lines" in html
    assert "line 999 of chief:0" in html
    assert "line 979 of chief:0" not in html
    assert in_sight(printed(2, 0)) == ""


def test_what_nodes_printed_has_their_colours():
    cluster = FakeCluster(nodes=5)
    for node in cluster.nodes:
        cluster.write(node, f"I am {node}\n")
    cluster.change("worker:0", state="failed")
    html = bundle_of(cluster)["text/html"]
    said = re.findall(r'tfos-said tfos-hue(\d)"[^>]*><span class="tfos-speaker">([^<]*)<', html)
    assert {name: int(hue) for hue, name in said} == cluster.view().places


def test_what_nodes_printed_alike_but_for_times_is_said_once():
    cluster = FakeCluster()
    for number, node in enumerate(cluster.nodes):
        cluster.write(node, f"Epoch 1/1\n8/8 - {number}s - {20 + number}ms/step - loss: 0.5\n")
    html = bundle_of(cluster)["text/html"]
    assert in_sight(html) == f"all {len(cluster.nodes)} nodesEpoch 1/1\n8/8 - 0s - 20ms/step - loss: 0.5\n"
    assert "times are those of chief:0" in html
    cluster.write("worker:0", "saved\n")
    assert "worker:0Epoch 1/1" in in_sight(bundle_of(cluster)["text/html"]), "it has printed more than the others"
    cluster.change("worker:0", state="failed", detail="ValueError")
    cluster.write("chief:0", "saved\n")
    assert "worker:0Epoch 1/1" in in_sight(bundle_of(cluster)["text/html"]), "one that broke stands by itself"


def test_what_nodes_printed_alike_before_they_failed_is_said_once():
    cluster = FakeCluster(nodes=3)
    for number, node in enumerate(cluster.nodes):
        cluster.write(node, f"W0000 00:00:17960242{number}.4612   1502{number} op_kernel.cc:1834] cast failed\n")
        cluster.change(node, state="failed", detail="ValueError")
    assert in_sight(bundle_of(cluster)["text/html"]).count("cast failed") == 1
    cluster.change("worker:0", state="stopped")
    told = in_sight(bundle_of(cluster)["text/html"])
    assert told.count("cast failed") == 2, "those that failed stand apart"
    assert "chief:0, worker:1W0000" in told, "those of many that failed are named"
    for seconds, node in ((30, "chief:0"), (900, "worker:1")):
        cluster.write(node, f"gave up after {seconds}s\n")
    told = in_sight(bundle_of(cluster)["text/html"])
    assert "chief:0W0000" in told
    assert "worker:1W0000" in told, "how long a node took may be why it failed"


def test_a_feed_says_how_far_spark_is_before_the_first_row_comes():
    waits = FeedView(rows={"chief:0": 0}, total_partitions=4, tasks=(57, 204))

    def told(**changes: object) -> str:
        return words(sent(view_of("running", "running", feeds=(dataclasses.replace(waits, **changes),)))["course"])

    assert "0 rows fed · Spark has done 57 of 204 tasks · 0/4 partitions" in told()
    assert told(rows={"chief:0": 0, "worker:0": 0}) == told(), "before the first row, no shares and bytes"
    assert " 0 B" not in told()
    assert "Spark has" not in told(tasks=(0, 4)), "these are the partitions"
    assert "Spark has" not in told(partitions=1)
    assert "validation: 0 rows fed · Spark has done 57 of 204 tasks" in told(split="validation")


def test_what_nodes_use_in_the_course_of_time_is_folded_below_the_metrics():
    cluster = FakeCluster(nodes=4)
    moments = [UsageView(float(at), cpu=(1.5, 1.0, at / 10), memory_bytes=(3e9, 2e9, 1e9)) for at in range(4)]
    cluster.alter(usage=tuple(moments))
    html = bundle_of(cluster)["text/html"]
    assert '<details class="tfos-metrics" data-key="CPU and memory">' in html
    assert 'aria-label="CPU, cores: max 1.5, median 1, min 0.3"' in html
    assert 'aria-label="memory, MB: max 3,000, median 2,000, min 1,000"' in html
    cluster.alter(usage=tuple(dataclasses.replace(one, gpu=(0.9, 0.5, 0.1)) for one in moments))
    assert 'aria-label="GPU, %: max 90, median 50, min 10"' in bundle_of(cluster)["text/html"]
    cluster.alter(usage=tuple(moments[:1]))
    assert "memory, MB" not in bundle_of(cluster)["text/html"], "one moment is no curve"
    two = FakeCluster(nodes=2)
    two.alter(usage=tuple(UsageView(float(at), (0.5, None if at else 1.0), (1e9, 2e9)) for at in range(2)))
    html = bundle_of(two)["text/html"]
    assert 'aria-label="CPU, cores: chief:0 0.5, worker:0 1"' in html, "each of a few, as long as it goes on"
    assert 'aria-label="memory, MB: chief:0 1,000, worker:0 2,000"' in html


def test_rows_to_validate_with_are_told_apart_from_those_to_train_on():
    done = {"partitions": 1, "total_partitions": 1, "complete": True}
    held_out = FeedView(rows={"chief:0": 5, "worker:0": 5}, split="validation", started_s=1.0, ended_s=11.0, **done)
    rows = FeedView(rows={"chief:0": 45, "worker:0": 45}, epochs=2, started_s=11.0, ended_s=12.0, **done)
    view = view_of("running", "running", feeds=(held_out, rows), timings={"running": 0.5})
    view = dataclasses.replace(view, nodes=tuple(dataclasses.replace(node, rows=30) for node in view.nodes))
    told = words(sent(view)["course"])
    assert "validation 10.0 s feed 1.00 s" in told, "the track of each"
    assert "validation: 10 rows in 10.0 s" in told
    assert " 90 rows fed · 1/1 partition" in told
    assert "30/90" in words(sent(view)["nodes"])


def test_leftover_rows_that_come_to_one_node_after_another_leave_what_an_open_feed_shows_in_place():
    def told(first, second, **fields):
        feed = FeedView(rows={"chief:0": first, "worker:0": second}, partitions=1, **fields)
        return words(drawn(view_of("running", "running", "running", feeds=(feed,))))

    assert "2 nodes with 5 rows each" in told(5, 5)
    assert "2 nodes with 5 to 6 rows" in told(6, 5)
    assert "chief:0 6 · worker:0 5" in told(6, 5, complete=True)
    assert "chief:0 9 · worker:0 5" in told(9, 5)


def test_a_run_that_ended_for_a_nan_says_so_once():
    reason = 'worker:0: FloatingPointError: loss is NaN since step 4, and on_nan="stop" ends the run'
    for told, times in [("", 1), ("worker:0: KeyError: 'x'", 1), (reason, 0)]:
        view = view_of("failed", "stopped", "failed", reason=told, alarm="loss of worker:0 is NaN since step 4")
        assert make_bundle(view, lambda *_: "")["text/html"].count('role="alert"') == times


def test_nodes_that_agree_have_one_row_which_unfolds_to_theirs():
    cluster = staged_cluster(COMPUTE)

    def rows() -> tuple[list[str], list[str]]:
        """Return the first row of each body, and the nodes of the folded one."""
        html = render_table(cluster.view())
        folded = re.search('<tbody class="tfos-members".*?</tbody>', html, re.DOTALL)
        shown = html.replace(folded[0], "") if folded else html
        names = re.findall(r'<tr [^>]*data-key="([^" ]*)"', folded[0]) if folded else []
        return re.findall(r'class="tfos-node">.*?</details>(?:<[^>]*>)*([^<]+)<', shown), names

    assert rows() == (["all 4 nodes"], cluster.nodes), "its own log and stacks are a click away"
    make_straggle(cluster, "worker:1")
    assert rows() == (["3 nodes", "worker:1"], ["chief:0", "worker:0", "worker:2"])
    make_straggle(cluster, "worker:1")
    cluster.change("worker:2", nan_since={"loss": 12})
    assert rows() == (cluster.nodes, []), "two that agree are no crowd"
    for node in cluster.nodes:
        cluster.change(node, nan_since={"loss": 12})
    assert rows() == (["3 nodes", "worker:1"], ["chief:0", "worker:0", "worker:2"]), "those that are all NaN agree, too"


def test_a_record_shows_nan_as_such_and_else_that_a_number_is_not_finite():
    cluster = FakeCluster(nodes=1)
    cluster.change("chief:0", metrics={"loss": math.nan, "norm": math.inf}, nan_since={"loss": 3})
    live = cluster.view()
    read = msgspec.json.decode(msgspec.json.encode(live), type=ClusterView)
    assert {*re.findall(">(NaN|inf|not finite)<", render_table(live))} == {"NaN", "inf"}
    assert {*re.findall(">(NaN|inf|not finite)<", render_table(read))} == {"NaN", "not finite"}


def test_of_nodes_that_agree_only_ranges_are_wide():
    view = staged_cluster(COMPUTE).view()
    row = re.search('<tr class="tfos-together.*?</tr>', render_table(view), re.DOTALL)
    cells = re.findall("<td.*?</td>", row[0], re.DOTALL)
    assert [cell for cell in cells if "tfos-range" in cell] == [cell for cell in cells if " – " in cell] != []


@pytest.mark.parametrize(
    ("apart", "together"),
    [
        ([{"metrics": {"loss": 0.5}}, {"metrics": {"loss": 0.5}}], "0.5"),
        ([{"metrics": {"loss": math.inf}}, {"metrics": {"loss": 0.5}}], "inf, 0.5"),
        ([{"metrics": {"loss": 1e-5}}, {"metrics": {"loss": 2e-5}}], "1e-5 – 2e-5"),
        ([{"activity": NodeActivity(gpu=gpu)} for gpu in (0.62, 0.58, None, 0.6)], "58 – 62 %"),
        ([{"activity": NodeActivity(memory_bytes=size)} for size in (990_000_000, 1_200_000_000)], "990 MB – 1.2 GB"),
        ([{"step": 9, "total_steps": 96}, {"step": 10, "total_steps": 96}], "9 – 10/96"),
        ([{"step": 9, "total_steps": 96}, {"step": 10, "total_steps": 97}], "9 – 10 of 96 – 97"),
        ([{"step": 96, "total_steps": 96}, {"step": 97, "total_steps": 97}], "all 96 – 97"),
        ([{"rows": 1024}, {"rows": 998}], "998 – 1,024"),
    ],
)
def test_what_nodes_report_apart_is_a_range(apart, together):
    cluster = FakeCluster(nodes=4)
    for node, fields in zip(cluster.nodes, itertools.cycle(apart), strict=False):
        cluster.change(node, state="running", **fields)
    row = re.search('<tr class="tfos-together.*?</tr>', render_table(cluster.view()), re.DOTALL)
    assert together in [re.sub("<[^>]*>", "", cell) for cell in re.findall("<td.*?</td>", row[0], re.DOTALL)]


# ---- charts ---------------------------------------------------------------------------------------------------------


def charts(*values: float, metric: str = "loss", nodes: tuple[str, ...] = ("chief:0", "worker:0")) -> str:
    reports = [
        MetricsReported(time_s=float(step), node=node, step=step, total_steps=None, metrics={metric: value * apart})
        for step, value in enumerate(values)
        for node, apart in zip(nodes, (1.0, 0.99), strict=False)
    ]
    found = re.findall(r"<figure.*?</svg>", drawn(view_of("running", "running", "running"), reports), re.DOTALL)
    return "".join(found)  # as it is first seen


def lines_of(*values: float, node: str = "chief:0", metric: str = "loss") -> list[SeriesPoints]:
    points = [(float(at), at, value) for at, value in enumerate(values)]
    return [SeriesPoints(metric=metric, node=node, points=points)]


def looks_of(html: str) -> dict[str, str]:
    """Return the first point of each look's line; the plain one is ``""``."""
    svgs = re.findall(r'(?:data-look="([^"]*)"[^>]*>)?<svg.*?tfos-line(?:-again)? .*?d="(M[^L]*)', html)
    return dict(svgs)


def test_a_chart_may_be_over_time_and_have_a_log_axis_where_that_can_be():
    html = render_charts(lines_of(100.0, 10.0, 1.0), ["chief:0"])
    assert list(looks_of(html)) == ["", "log", "time", "time log"]
    assert re.search(r'data-look="log".*?d="M46 6L179 58L312 110"', html), "logarithms of powers of ten are in a line"
    assert list(looks_of(render_charts(lines_of(1.0, -1.0), ["chief:0"]))) == ["", "time"]
    many = [one for at in range(60) for one in lines_of(2.0 + at, 1.0, node=f"worker:{at}")]
    assert list(looks_of(render_charts(many, [f"worker:{at}" for at in range(60)]))) == [""], "a cell stays small"


def test_a_smoothed_line_is_there_for_whoever_wants_it():
    assert "tfos-smooth" not in render_charts(lines_of(1.0, 2.0), ["chief:0"])
    noisy = render_charts(lines_of(*(1.0 + at % 2 for at in range(40))), ["chief:0"])
    smooth = re.search(r'<g class="tfos-smooth tfos-hue0" display="none"><path d="([^"]*)"', noisy)
    heights = [float(point.split()[1]) for point in re.split("[ML]", smooth[1])[1:]]
    later = heights[len(heights) // 2 :]
    assert len(later) > 5
    assert max(later) - min(later) < 20, "of the 104 between which the values jump"


def reported(node: str, step: int, **metrics: float) -> MetricsReported:
    return MetricsReported(time_s=float(step), node=node, step=step, total_steps=None, metrics=metrics)


def test_the_whole_loss_comes_before_those_of_outputs_and_validation_last():
    told = {"sale_accuracy": 0.5, "price_loss": 1.0, "loss": 2.0, "val_loss": 3.0, "val_price_loss": 4.0, "epoch": 1.0}
    html = render_charts(all_series([reported("chief:0", 1, **told)], 0.0), ["chief:0"])
    assert re.findall(r"<b>(\w+)</b>", html) == ["loss", "price_loss", "sale_accuracy"]


def test_the_values_of_an_axis_are_written_alike():
    html = render_charts(all_series([reported("chief:0", step, rate=0.001) for step in (1, 2)], 0.0), ["chief:0"])
    assert ">0.00095<" in html
    assert ">0.00105<" in html
    large = render_charts(all_series([reported("chief:0", step, rate=1.23e12) for step in (1, 2)], 0.0), ["chief:0"])
    assert all(f">{tick}<" in large for tick in ("1.2e12", "1.25e12", "1.15e12"))


def test_nodes_that_agree_have_one_line_together():
    nodes = ["chief:0", "worker:0", "worker:1"]
    same = [reported(node, step, loss=2.0 / step) for step in range(1, 9) for node in nodes[:2]]
    for late in ([], [reported("worker:1", 1, loss=2.0)], [reported("worker:1", 9, loss=0.1)]):
        html = render_charts(all_series([*same, *late], 0.0), nodes)
        assert html.count('class="tfos-line tfos-hue-all"') == 1, "one that has just begun counts among them"
        assert f'aria-label="loss: all {3 if late else 2} nodes 0.25"' in html
    further = [*same, reported("worker:0", 9, loss=0.1)]
    assert 'aria-label="loss: all 2 nodes 0.1"' in render_charts(all_series(further, 0.0), nodes)
    html = render_charts(all_series([*same, reported("worker:1", 1, loss=2.1)], 0.0), nodes)
    assert "all 3 nodes" not in html
    apart = [reported("worker:1", 100 + step, loss=0.1) for step in range(9)]
    assert "all 3 nodes" not in render_charts(all_series([*same, *apart], 0.0), nodes)


def test_a_line_of_all_nodes_stays_one_however_long_the_run_is():
    book, nodes = SeriesBook(0.0), ("chief:0", "worker:0", "worker:1")
    for step in range(1, 4000):
        # They report after other steps now and then.
        book.add([reported(node, step, loss=1.0 / step) for at, node in enumerate(nodes) if step % (at + 2)])
        if step > 6:
            assert [one["node"] for one in book.series()] == ["all 3 nodes"], step


def test_a_curve_of_keras_has_no_spike_where_an_epoch_ends():
    """Means of some steps make the curve; those of epochs stand in caption and table, and make the curve by epoch."""
    reports = [reported("chief:0", step, loss=2.0 - step / 100, accuracy=step / 100) for step in range(10, 101, 10)]
    for epoch in (2, 1):
        means = {
            "loss": 2.2 - epoch / 2,
            "accuracy": epoch / 2 - 0.25,
            "val_loss": 1.9 - epoch / 2,
            "epoch": float(epoch),
        }
        reports.insert(5 * epoch, reported("chief:0", 50 * epoch, **means))
    html = render_charts(all_series(reports, 0.0), ["chief:0"], with_values=True)
    loss = re.search("<figure.*?</figure>", html, re.DOTALL)[0]
    line, *_ = re.findall(r'class="tfos-line tfos-hue0"[^>]*data-points="([^"]*)"', loss)
    assert line == " ".join(f"{step}={2 - step / 100:.3g}" for step in range(10, 101, 10))
    assert re.findall(r'class="tfos-epochs tfos-hue0" [^>]*data-points="([^"]*)"', loss) == ["50=1.7 100=1.2"]
    assert words(loss).startswith("<figure> loss 1.2 · validation 0.9"), "the epoch's mean, though steps have had less"
    going_on = [*reports, reported("chief:0", 110, loss=0.9), reported("chief:0", 120, loss=1.3)]
    assert "loss 1.3 · best 1.2 at step 100 " in words(render_charts(all_series(going_on, 0.0), ["chief:0"]))
    live = words(render_charts(all_series(going_on, 0.0), ["chief:0"], in_table={"loss": 0}))
    assert "loss best 1.2 at step 100 · validation 0.9 " in live, "the table has the last one"
    narrow = render_charts(all_series(going_on, 0.0), ["chief:0"], in_table={"loss": 3, "val_loss": 5})
    for part, told in ((3, "1.3 · "), (5, " · validation 0.9")):
        assert f'<span class="tfos-fact{part}">{told}</span>' in narrow, "where the table has no room for it"
    better = words(render_charts(all_series(going_on[:-1], 0.0), ["chief:0"]))
    assert "loss 0.9 · validation 0.9" in better, "it is better than any epoch so far"


def test_the_best_value_is_told_where_it_is_not_the_last_one():
    assert "best 0.5 at step 1<" in render_charts(lines_of(2.0, 0.5, 1.0), ["chief:0"])
    assert "best 0.9 at step 1<" in render_charts(lines_of(0.1, 0.9, 0.8, metric="val_accuracy"), ["chief:0"])
    two = [
        {**line, "node": name} for name, line in zip("AB", lines_of(2.0, 1.0) + lines_of(2.0, 0.5, 1.0), strict=True)
    ]
    assert "best 0.5 at step 1 (B)<" in render_charts(two, ["A", "B"]), "of several, whose it is"
    for told in (lines_of(2.0, 1.0), lines_of(2.0, 1.0, 3.0, metric="temperature")):
        assert "best" not in render_charts(told, ["chief:0"])


def test_the_previous_run_of_the_name_is_behind_the_curves(tmp_path):
    for day, fields in enumerate(({"reports": [{"loss": 4.0}, {"loss": 2.0}]}, {"state": "running", "ended_s": None})):
        write_run(tmp_path, f"mnist-2026010{day + 1}-120000-aaaa", **{"process": this_process(), **fields})
    write_run(tmp_path, "mnist-20260103-120000-aaaa", name="mnist-2")
    last = write_run(tmp_path, "mnist-20260104-120000-aaaa", reports=[{"loss": 3.0}, {"loss": 1.0}])
    html = tfos_lab.runs()[last]._repr_html_()
    assert "previous run" in words(html)
    assert re.search(r'<path d="M46 6L312 75.3" class="tfos-before"', html), "its curve, from 4 to 2 of 4 to 1"
    first = tfos_lab.runs()[tmp_path / "mnist-20260101-120000-aaaa"]._repr_html_()
    assert "previous run" not in words(first)


def test_behind_the_curves_of_a_run_without_a_name_is_one_of_much_the_same_code(tmp_path):
    cells = {"a": "%%tfos\nfirst()\nfit()\n", "b": "%%tfos\nother()\nevaluate()\n", "c": "%%tfos\nfirst()\nfit(2)\n"}
    folders = []
    for day, (letter, source) in enumerate(cells.items(), 1):
        code = CodeRecord(name="map_fun", file="Cell In[5]", line=1, source=source)
        folders.append(write_run(tmp_path, f"cluster-2026010{day}-120000-{letter * 4}", code=code))
    (folders[-1] / "run.json").rename(tmp_path / "not yet")
    assert series_before(folders[-1], "cluster") == []
    (tmp_path / "not yet").rename(folders[-1] / "run.json")
    assert [one["metric"] for one in series_before(folders[-1], "cluster")] == ["loss", "accuracy"]
    pages = [tfos_lab.runs()[folder]._repr_html_() for folder in folders]
    assert ["previous run" in words(html) for html in pages] == [False, False, True]


def test_a_chart_has_a_line_for_each_node_gaps_single_points_and_flat_lines():
    nan = float("nan")
    chart = charts(3.0, 2.0, 1.0)
    assert re.findall(r'class="tfos-line (tfos-hue\d)"', chart) == ["tfos-hue0", "tfos-hue1"]
    assert 'aria-label="loss: chief:0 1, worker:0 0.99"' in chart
    assert '<path d="M46 6L179 58L312 110"' in charts(3.0, 2.0, 1.0, nodes=("chief:0",))
    for low, high in [(3e-9, 4e-9), (-1e12, 5e12), (1.0, 1.0001)]:
        assert 4 < charts(low, high, nodes=("chief:0",)).count("tfos-tick") < 20, "round ticks"
    assert re.search(r'd="M[^ML]+L[^ML]+M[^ML]+L[^ML]+"', charts(1.0, 2.0, nan, 2.0, 1.0, nodes=("chief:0",)))
    assert "<circle" in charts(1.0)
    assert "not finite" in charts(nan, nan)
    assert 'aria-label="loss: chief:0 not finite, worker:0 not finite"' in charts(1.0, nan), "as in the table"
    assert "L312 58" in charts(5.0, 5.0, nodes=("chief:0",))
