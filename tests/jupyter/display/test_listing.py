"""Which nodes have a row: all of a few, of thousands those that need attention and those of opened groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfos_lab.core.states import NodeState
from tfos_lab.engine.state.activity import NodeActivity
from tfos_lab.engine.state.events import ClusterView, NodeView
from tfos_lab.jupyter.display.listing import (
    MANY_NODES,
    MAX_GROUPS,
    MAX_MEMBERS,
    MAX_OPEN,
    MAX_WORST,
    Listing,
    only_notable,
)


def node(number, **fields):
    known = {"state": NodeState.RUNNING, "host": f"host-{number // 8}", "step": number % 5, **fields}
    return NodeView(f"worker:{number}", "worker", number, is_chief=number == 0, **known)


def cluster(count, **changed):
    nodes = [node(number) for number in range(count)]
    for number, fields in changed.items():
        place = int(number.removeprefix("n"))
        nodes[place] = replace(nodes[place], **fields)
    return ClusterView("id", "scale", "running", "spark", 0.0, None, tuple(nodes), {})


@pytest.fixture
def troubled():
    return cluster(
        1000,
        n500={"state": NodeState.LOST},
        n40={"hung": "no step for 40 s"},
        n77={"activity": NodeActivity(slower=1.5)},
        n78={"activity": NodeActivity(slower=3.0)},
        n900={"state": NodeState.FAILED},
    )


def test_all_of_a_few_nodes_have_a_row():
    listed = Listing().of(cluster(MANY_NODES))
    assert [view.task_index for view, group in listed.rows if not group] == list(range(MANY_NODES))
    assert not listed.groups


def test_of_many_the_worst_come_first_and_then_the_chief(troubled):
    listed = Listing().of(troubled)
    assert [view.task_index for view, _ in listed.rows] == [900, 500, 40, 78, 77, 0]
    assert [(group.key, len(group.nodes), group.troubled) for group in listed.groups] == [
        ("running", 997, 2),
        ("hangs", 1, 1),
        ("lost", 1, 1),
        ("failed", 1, 1),
    ] or {group.key for group in listed.groups} == {"running", "hangs", "lost", "failed"}


def test_an_opened_group_lists_its_worst_and_then_those_that_are_least_far(troubled):
    listing = Listing()
    listing.set_open("running", is_open=True)
    rows = [view for view, group in listing.of(troubled).rows if group == "running"]
    assert len(rows) <= MAX_MEMBERS
    assert {view.step for view in rows} == {0}
    listing.set_open("running", is_open=False)
    assert not [group for _, group in listing.of(troubled).rows if group]


def test_groups_of_hosts_are_bounded_and_the_rest_is_counted(troubled):
    listing = Listing()
    listing.group_by("host")
    listed = listing.of(troubled)
    assert len(listed.groups) == MAX_GROUPS
    assert listed.more == f"{125 - MAX_GROUPS} more hosts with {1000 - 8 * MAX_GROUPS} nodes"
    assert [group.key for group in listed.groups[:1]] == ["host-9"], "the one with two stragglers"


def test_only_so_many_groups_are_open_at_a_time(troubled):
    listing = Listing()
    listing.group_by("host")
    for number in range(MAX_OPEN + 3):
        listing.set_open(f"host-{number}", is_open=True)
    assert sum(group.is_open for group in listing.of(troubled).groups) <= MAX_OPEN


def test_however_many_fail_the_rows_are_bounded():
    lost = cluster(4096, **{f"n{number}": {"state": NodeState.LOST} for number in range(2000)})
    listed = Listing().of(lost)
    assert len(listed.rows) == MAX_WORST
    assert listed.more == f"{2000 - MAX_WORST:,} more need attention"


def test_an_unknown_grouping_changes_nothing():
    listing = Listing()
    listing.group_by("colour")
    assert listing.grouping == "state"


def test_what_is_saved_counts_all_and_lists_the_notable(troubled):
    saved = only_notable(troubled)
    assert [view.task_index for view in saved.nodes] == [900, 500, 40, 78, 77, 0]
    assert saved.notes[-1].startswith("1,000 nodes: 998 running, 1 lost, 1 failed; listed are")
    assert only_notable(cluster(4)) == cluster(4)
