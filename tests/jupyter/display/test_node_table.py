"""The columns of the node table, and the progress of each node."""

from __future__ import annotations

import dataclasses

from tests.jupyter.views import view_of
from tfos_lab.engine.state.activity import NodeActivity
from tfos_lab.engine.state.events import FeedView, RunFacts, SearchFacts
from tfos_lab.jupyter.display.node_table import hidden_facts, node_columns, progress, progress_column


def test_empty_columns_are_left_out() -> None:
    view = view_of("running", "running", "running")
    assert [column.key for column in node_columns(view)] == ["node", "state"]
    first = dataclasses.replace(view.nodes[0], host="h", step=1, metrics={"loss": 0.5}, rows=7, gpus=("0", "1"))
    columns = node_columns(dataclasses.replace(view, nodes=(first, view.nodes[1])))
    assert [column.title for column in columns] == ["Node", "State", "Step", "loss", "Rows", "Host", "GPUs"]
    assert [column.text(first) for column in columns] == ["chief:0", "running", "1", "0.5", "7", "h", "0, 1"]
    assert [column.text(view.nodes[1]) for column in columns][2:] == [""] * 5


def test_progress_is_known_only_with_a_total() -> None:
    node = view_of("running", "running").nodes[0]
    assert progress(node) is None
    assert progress(dataclasses.replace(node, step=5)) is None
    assert progress(dataclasses.replace(node, step=5, total_steps=20)) == 0.25
    assert progress(dataclasses.replace(node, step=25, total_steps=20)) == 1.0


def test_progress_is_in_rows_where_no_steps_are_known() -> None:
    view = view_of("running", "running")
    node = dataclasses.replace(view.nodes[0], rows=30)
    feed = FeedView(rows={"chief:0": 30}, partitions=1, size_bytes=1, epochs=2)
    assert progress(node, [feed]) is None, "more rows may come"
    whole = dataclasses.replace(feed, complete=True)
    assert progress(node, [whole]) == 0.5
    assert progress(dataclasses.replace(node, step=1, total_steps=10), [whole]) == 0.1
    assert progress(node, [whole, dataclasses.replace(whole, number=1)]) == 0.25, "both are to be read"
    assert progress(node, [whole, dataclasses.replace(feed, number=1)]) is None
    assert progress(node, [dataclasses.replace(whole, kind="stream")]) is None, "a stream has no end"
    assert progress_column(view) == "rows"


def test_independent_runs_have_columns_of_their_own() -> None:
    view = view_of("running", "done", "running", "waiting")
    facts = (
        RunFacts("lr=0.1", tries=2, seconds=0.123),
        RunFacts("lr=0.2", going=True, tries=1, seconds=7.0),
        RunFacts(),
    )
    nodes = [dataclasses.replace(node, run=run) for node, run in zip(view.nodes, facts, strict=True)]
    runs = dataclasses.replace(view, nodes=tuple(nodes), of_runs=True)
    columns = {column.title: [column.text(node) for node in runs.nodes] for column in node_columns(runs)}
    assert list(columns)[:5] == ["Run", "Args", "State", "Tries", "Seconds"]
    assert columns["Args"] == ["lr=0.1", "lr=0.2", ""]
    assert columns["Tries"] == ["2", "", ""]
    assert columns["Seconds"] == ["0.12 s", "7 s", ""]


def test_trials_of_a_search_show_their_best_value_first() -> None:
    view = view_of("running", "done", "waiting")
    facts = (RunFacts("lr=0.1", tries=1, seconds=2.0, best=0.25), RunFacts())
    nodes = [dataclasses.replace(node, run=run) for node, run in zip(view.nodes, facts, strict=True)]
    search = dataclasses.replace(view, nodes=tuple(nodes), of_runs=True, search=SearchFacts("loss", 0.25, "trial 0"))
    columns = {column.title: [column.text(node) for node in search.nodes] for column in node_columns(search)}
    assert list(columns)[:4] == ["Trial", "Best loss", "Parameters", "State"]
    assert columns["Best loss"] == ["0.25", ""]


def test_pid_and_port_give_way_to_what_a_node_does() -> None:
    view = view_of("running", "running")
    activity = NodeActivity(step_s=0.25, computes=1.0, cpu=1.5, memory_bytes=1000, last_sign="step 3")
    node = dataclasses.replace(view.nodes[0], activity=activity, pid=4711, address="h:39001", executor="7")
    columns = node_columns(dataclasses.replace(view, nodes=(node,)))
    assert [column.title for column in columns if column.shown] == [
        "Node",
        "State",
        "Step time",
        "Time",
        "CPU",
        "Memory",
    ]
    assert hidden_facts(node, columns) == ["Last sign step 3", "Executor 7", "Port 39001", "PID 4711"]


def test_all_metrics_have_columns_of_which_three_are_shown_at_first() -> None:
    view = view_of("running", "running")
    node = dataclasses.replace(
        view.nodes[0], metrics={"lr": 0.1, "loss": 1.0, "auc": 0.5, "val_loss": 2.0, "val_auc": 0.4}
    )
    columns = [column for column in node_columns(dataclasses.replace(view, nodes=(node,))) if "metric" in column.key]
    assert [(column.title, column.shown) for column in columns] == [
        ("loss", True), ("lr", True), ("auc", True), ("val_loss", False), ("val_auc", False),
    ]  # fmt: skip
