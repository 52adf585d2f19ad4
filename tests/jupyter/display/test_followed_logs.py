"""Whose log text a page gets."""

from __future__ import annotations

from tests.support.fake_cluster import FakeCluster
from tfos_lab.engine.state.events import LogText
from tfos_lab.jupyter.display.followed_logs import FollowedLogs


def wrote(node, text):
    return LogText(time_s=1.0, node=node, stream="stdout", text=text)


def test_everybody_is_followed_until_some_are_chosen():
    followed = FollowedLogs(FakeCluster())
    assert followed.among([wrote("worker:0", "a\n")]) == [wrote("worker:0", "a\n")]


def test_chosen_nodes_begin_with_the_end_of_their_files_and_others_are_left_out():
    cluster = FakeCluster()
    cluster.write("worker:1", "before\n")
    followed = FollowedLogs(cluster)
    followed.choose(["worker:1", "chief:0"])
    first = followed.among([wrote("worker:0", "not seen\n"), wrote("worker:1", "in the file, too\n")])
    assert [(event.node, event.text.strip()) for event in first] == [("worker:1", "before")]
    then = followed.among([wrote("worker:0", "not seen\n"), wrote("worker:1", "after\n")])
    assert then == [wrote("worker:1", "after\n")]
