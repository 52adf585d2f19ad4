"""The driver's part of a profile: the trace comes home whole, and nothing is written outside its folder."""

from __future__ import annotations

import threading

import pytest

from tfos_lab import messages as m
from tfos_lab.engine.profile import profiles as profiles_module
from tfos_lab.engine.profile.profiles import Profiles
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.errors import ProfileFailed

TRACE = bytes(range(256)) * 100
NAME = "plugins/profile/now/host.xplane.pb"
SAMPLES = [(["\tmain thread", "\ttrain (cell:1)"], 3), (["\tmain thread", "keras\tfit (t.py:1)"], 1)]


class Node:
    """A node that answers at once: what it says of its profile, and pieces of 10,000 bytes."""

    def __init__(self, *, files=None, note="", problem="", sends=True):
        self._profile = {"files": {NAME: len(TRACE)} if files is None else files, "note": note, "problem": problem}
        self._sends = sends
        self.profiles = Profiles(self.request, threading.Event())

    def request(self, change):
        [send] = change(0.0)
        match send.message:
            case m.ProfileWanted(request=number):
                self.profiles.take(m.Profiled(send.rank, number, 0.01, SAMPLES, **self._profile))
            case m.ProfilePieceWanted(request=number, name=name, offset=offset):
                data = TRACE[offset : offset + 10_000] if self._sends else b""
                self.profiles.take(m.ProfilePiece(send.rank, number, name, offset, data))

    def make(self, folder, **options):
        return self.profiles.make("worker:0", 1, 2.0, RunDir(folder, **options))


def test_a_profile_is_a_flame_graph_in_the_run_s_folder_and_a_trace_among_its_event_files(tmp_path):
    profile = Node().make(tmp_path)
    assert profile.flame_graph.parent == tmp_path
    assert "train (cell:1): 75.0 %" in profile.flame_graph.read_text()
    assert profile.trace_dir.parent == tmp_path / "events"
    assert (profile.trace_dir / NAME).read_bytes() == TRACE
    assert (profile.node, profile.seconds, profile.note) == ("worker:0", 2.0, "")
    assert profile.hottest == [("train (cell:1)", 0.75), ("fit (t.py:1)", 0.25)]
    assert "<svg" in profile._repr_html_()
    assert str(profile.trace_dir) in profile._repr_html_()
    assert " 75.0%  train (cell:1)" in str(profile)


def test_event_files_may_be_elsewhere(tmp_path):
    logs = tmp_path / "logs"
    assert Node().make(tmp_path, log_dir=str(logs)).trace_dir.parent == logs
    assert Node().make(tmp_path, log_dir="gs://bucket/logs").trace_dir.parent == tmp_path / "events"


@pytest.mark.parametrize(
    ("node", "note"),
    [
        ({"files": {}, "note": "no trace: TensorFlow is missing"}, "no trace: TensorFlow is missing"),
        ({"files": {"../../evil": 5}}, "outside its folder"),
        ({"files": {"/etc/evil": 5}}, "outside its folder"),
        ({"files": {"huge": 2 << 30}}, "profile fewer seconds"),
        ({"sends": False}, "the node stopped sending"),
    ],
)
def test_without_a_whole_trace_there_is_the_flame_graph_and_the_reason(tmp_path, node, note):
    run = tmp_path / "run"
    run.mkdir()
    profile = Node(**node).make(run)
    assert profile.trace_dir is None
    assert note in profile.note
    assert profile.flame_graph.exists()
    assert not list(tmp_path.rglob("*evil"))


def test_a_node_says_why_it_has_no_profile(tmp_path):
    with pytest.raises(ProfileFailed, match="worker:0 cannot be profiled: it is being profiled already"):
        Node(problem="it is being profiled already").make(tmp_path)


def test_a_node_that_does_not_answer_is_not_waited_for_forever(tmp_path, monkeypatch):
    monkeypatch.setattr(profiles_module, "_EXTRA_S", -2.0)
    profiles = Profiles(lambda _change: None, threading.Event())
    with pytest.raises(ProfileFailed, match="it has not answered within 0 s"):
        profiles.make("worker:0", 1, 2.0, RunDir(tmp_path))


def test_a_cluster_that_ends_meanwhile_is_the_reason(tmp_path):
    over = threading.Event()
    over.set()
    profiles = Profiles(lambda _change: None, over)
    with pytest.raises(ProfileFailed, match="its cluster has ended meanwhile"):
        profiles.make("worker:0", 1, 2.0, RunDir(tmp_path))
