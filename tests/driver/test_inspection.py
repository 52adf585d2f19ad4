"""Where nodes are and what they spend their time on: stacks and profiles, of nodes that the test plays."""

import xml.etree.ElementTree as ET

import pytest

from tests.support.eventually import eventually
from tfos_lab.core import messages as m
from tfos_lab.errors import ConfigError, ProfileFailed

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture
def ask(start, nodes):
    """A cluster whose nodes answer each message with what ``reply(rank, message)`` returns."""

    def ask(reply, **options):
        cluster = start(**options)
        cluster.wait_until_running()
        played = nodes.listener.on_send

        def on_send(identity, message):
            played(identity, message)
            if (answer := reply(int(identity.removeprefix(b"agent/")), message)) is not None:
                nodes.send(answer)

        nodes.listener.on_send = on_send
        return cluster

    return ask


# ---- stacks ---------------------------------------------------------------------------------------------------------


def test_the_stacks_of_all_nodes_or_of_one_are_shown(ask, nodes):
    def reply(rank, message):
        if isinstance(message, m.StacksWanted):
            return m.Stacks(message.request, m.Condition.BUSY, f"text {rank}\nmore", rank=rank)
        return None

    cluster = ask(reply)
    assert cluster.stacks() == {"chief:0": "text 0\nmore", "worker:0": "text 1\nmore"}
    assert cluster.stacks("worker:0") == {"worker:0": "text 1\nmore"}
    with pytest.raises(KeyError, match="no node 'ps:0' in this cluster; there are chief:0, worker:0"):
        cluster.stacks("ps:0")
    nodes.send(m.Stacks(99, m.Condition.BUSY, "late", rank=0))  # is dropped
    nodes.end(1)
    eventually(lambda: cluster.nodes[1].state == "done")
    assert cluster.stacks() == {"chief:0": "text 0\nmore", "worker:0": "it has no process: its state is done"}


# ---- profiles -------------------------------------------------------------------------------------------------------


TRACE = bytes(range(256)) * 2500
NAME = "plugins/profile/now/host.xplane.pb"
SAMPLES = [
    (["\tmain thread", "\ttrain (cell:3)", "keras\tfit (trainer.py:1)"], 6),
    (["\tmain thread", "\ttrain (cell:3)", "\tload <rows> (cell:9)"], 3),
    (["\treader", "numpy\tsvd (linalg.py:1)"], 1),
]
SVG = "{http://www.w3.org/2000/svg}"


def profiled(*, files=None, note="", problem="", sends=True, samples=SAMPLES):
    """What a node says of its profile, and the pieces of its trace."""
    files = {NAME: len(TRACE)} if files is None else files

    def reply(rank, message):
        match message:
            case m.StacksWanted(request=number):
                return m.Stacks(number, m.Condition.BUSY, "", rank=rank)
            case m.ProfileWanted(request=number):
                return m.Profiled(number, 0.01, samples, files=files, note=note, problem=problem, rank=rank)
            case m.PieceWanted(folder=folder, name=name, offset=offset):
                piece = TRACE[offset : offset + message.size_bytes] if sends else b""
                return m.FilePiece(folder, name, offset, piece, "" if sends else "it is gone", rank=rank)
        return None

    return reply


def boxes(svg):
    """Return title → (x, y, width, colour)."""
    found = {}
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        place = tuple(float(rect.get(name)) for name in ("x", "y", "width"))
        found[group.find(f"{SVG}title").text] = (*place, rect.get("fill"))
    return found


@pytest.mark.parametrize("seconds", [0, -1, 601, float("nan"), "5", None])
def test_what_is_no_time_for_a_profile_is_refused(ask, seconds):
    with pytest.raises(ConfigError, match=f"seconds={seconds!r}: give more than 0 and at most 600"):
        ask(profiled()).profile("worker:0", seconds)


def test_a_profile_is_a_flame_graph_in_the_run_s_folder_and_a_trace_among_its_event_files(ask):
    cluster = ask(profiled())
    profile = cluster.profile("worker:0", 2.0)
    assert (profile.node, profile.seconds, profile.note) == ("worker:0", 2.0, "")
    assert profile.flame_graph.parent == cluster.run_dir
    assert profile.trace_dir.parent == cluster.run_dir / "events"
    assert (profile.trace_dir / NAME).read_bytes() == TRACE
    assert profile.hottest[:2] == [("fit (trainer.py:1)", 0.6), ("load <rows> (cell:9)", 0.3)]
    assert "<svg" in profile._repr_html_()
    assert " 60.0%  fit (trainer.py:1)" in str(profile)


def test_a_box_is_as_wide_as_its_share_of_the_time_and_below_its_caller(ask):
    drawn = boxes(ask(profiled()).profile("worker:0", 2.0).flame_graph.read_text())
    main, fit = drawn["main thread: 90.0 %, 0.09 s"], drawn["fit (trainer.py:1): 60.0 %, 0.06 s"]
    load, svd = drawn["load <rows> (cell:9): 30.0 %, 0.03 s"], drawn["svd (linalg.py:1): 10.0 %, 0.01 s"]
    assert (main[2], fit[2], load[2], svd[2]) == pytest.approx((900, 600, 300, 100))
    assert (main[0], fit[0], load[0], svd[0]) == pytest.approx((0, 0, 600, 900))
    assert main[1] < fit[1] == load[1]
    assert fit[3] != load[3] == main[3]


@pytest.mark.parametrize(
    ("node", "note"),
    [
        ({"files": {}, "note": "no trace: TensorFlow is missing"}, "no trace: TensorFlow is missing"),
        ({"files": {"../../evil": 5}}, "it was not to come"),
        ({"files": {"/etc/evil": 5}}, "it was not to come"),
        ({"files": {"huge": 2 << 30}}, "profile fewer seconds"),
        ({"sends": False}, "it is gone"),
    ],
)
def test_without_a_whole_trace_there_is_the_flame_graph_and_the_reason(ask, tmp_path, node, note):
    profile = ask(profiled(**node)).profile("worker:0", 2.0)
    assert profile.trace_dir is None
    assert note in profile.note
    assert profile.flame_graph.exists()
    assert not list(tmp_path.rglob("*evil"))


def test_a_node_says_why_it_has_no_profile(ask):
    with pytest.raises(ProfileFailed, match="worker:0 cannot be profiled: it is being profiled already"):
        ask(profiled(problem="it is being profiled already")).profile("worker:0", 2.0)
