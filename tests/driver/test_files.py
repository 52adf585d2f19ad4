"""Files that the driver fetches from nodes: output, large results and event files; the test plays the nodes.

They are stored complete, in their folder and nowhere else, and never beyond their limit.
"""

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from tests.support.eventually import PATIENCE_S, eventually
from tests.support.fake_nodes import identity_of
from tfos_lab.core import messages as m

pytestmark = pytest.mark.leaves_nothing


def listed(files, *, rank=0, folder="output", number=1, unsettled=(), **more):
    """Return a list of files, by name and content, the first of which is the newest."""
    found = [
        m.ListedFile(name, len(data), 1_000 - age, name not in unsettled)
        for age, (name, data) in enumerate(files.items())
    ]
    return m.FilesListed(folder, number, found, **more, rank=rank)


class Stand:
    """A cluster that runs, and what its nodes are answered."""

    def __init__(self, cluster, nodes):
        self.cluster, self.nodes = cluster, nodes
        self.number = 0

    def ask(self, message):
        """Send a node's message; return what it is answered."""
        sent = self.nodes.listener.sent
        before = len(sent)
        self.nodes.send(message)
        self.nodes.settle()
        mine = identity_of(message.rank)
        return [answer for to, answer in sent[before:] if to == mine]

    def bring(self, files, *, rank=0, change=lambda piece: piece, **more):
        """List files, and send the pieces that are asked for; return the names of these, and the last answer."""
        self.number += 1
        asked, names = self.ask(listed(files, rank=rank, number=self.number, **more)), []
        while asked and isinstance(wanted := asked.pop(0), m.PieceWanted):
            data = files[wanted.name][wanted.offset : wanted.offset + wanted.size_bytes]
            names += [wanted.name] if wanted.name not in names else []
            asked += self.ask(change(m.FilePiece(wanted.folder, wanted.name, wanted.offset, data, rank=rank)))
            taken = asked[-1] if asked else None
        return names, (taken if names else wanted)

    def stored(self, folder="output"):
        home = self.cluster.run_dir / folder
        return {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}

    @property
    def notes(self):
        return self.cluster.view().notes


@pytest.fixture
def stand(start, nodes):
    def make(**options):
        cluster = start(**options)
        cluster.wait_until_running()
        return Stand(cluster, nodes)

    return make


# ---- output ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def output(stand):
    """The chief is on another host and has asked for its output folder, which is empty."""

    def make(**options):
        made = stand(**options)
        assert made.ask(m.FilesListed("output", 0, [], place="/tmp/there", rank=0)) == [m.FilesTaken("output", 0)]
        return made

    return make


def piece(name, data, offset=0, rank=0):
    return m.FilePiece("output", name, offset, data, rank=rank)


def test_a_file_appears_when_it_is_complete_and_is_told_of_while_it_comes(output):
    stand = output()
    model, rest = b"x" * m.PIECE_BYTES + b"y" * 200, b"z" * 1_300
    wanted = stand.ask(listed({"a/m.keras": model, "rest": rest}))
    assert [(one.name, one.offset, one.size_bytes) for one in wanted] == [
        ("a/m.keras", 0, m.PIECE_BYTES),
        ("a/m.keras", m.PIECE_BYTES, 200),
        ("rest", 0, 1_300),
    ]
    stand.ask(piece("a/m.keras", model[: m.PIECE_BYTES]))
    assert stand.stored() == set()
    stand.ask(piece("a/m.keras", model[m.PIECE_BYTES :], m.PIECE_BYTES))
    assert stand.stored() == {"a/m.keras"}
    assert (stand.cluster.run_dir / "output" / "a" / "m.keras").read_bytes() == model
    assert "output of chief:0: 0.3 MB of 0.3 MB copied here" in stand.notes
    assert stand.ask(piece("rest", rest)) == [m.FilesTaken("output", 1)]
    assert stand.notes == ()


def test_files_that_may_still_be_written_come_at_the_end_and_what_is_here_does_not_come_again(output):
    stand = output()
    files = {"log": b"growing", "m": b"done"}
    assert stand.bring(files, unsettled=["log"]) == (["m"], m.FilesTaken("output", 1, left_out=1))
    assert stand.bring(files, last=True) == (["log"], m.FilesTaken("output", 2))
    assert stand.stored() == {"log", "m"}


def test_files_that_have_changed_replace_those_here_and_those_that_are_gone_go(output):
    stand = output()
    stand.bring({"best": b"first", "folder/old": b"x"})
    home = stand.cluster.run_dir / "output"
    again = m.FilesListed("output", 2, [m.ListedFile("best", 6, 2_000)], rank=0)
    [wanted] = stand.ask(again)
    assert (home / "best").read_bytes() == b"first"
    assert stand.ask(m.FilePiece("output", "best", wanted.offset, b"better", rank=0)) == [m.FilesTaken("output", 2)]
    assert (home / "best").read_bytes() == b"better"
    assert [path.name for path in home.iterdir()] == ["best"]


def test_only_so_much_is_on_its_way_and_each_piece_makes_room_for_another(output):
    stand = output()
    data = b"x" * (5 << 20)
    first = stand.ask(listed({"large": data}))
    assert sum(wanted.size_bytes for wanted in first) < len(data)
    assert stand.ask(piece("large", data[: m.PIECE_BYTES]))[0].offset == sum(wanted.size_bytes for wanted in first)
    many = {f"{number}": b"" for number in range(10_000)}
    assert len(stand.ask(listed(many, number=2))) < len(many)


@pytest.mark.parametrize("broken", ["short", "long", "with a problem"])
def test_a_file_that_does_not_come_whole_is_left_out_and_the_old_one_stays(output, broken):
    stand = output()
    stand.bring({"m": b"good"})
    changes = {
        "short": {"data": b"x"},
        "long": {"data": b"x" * 10},
        "with a problem": {"data": b"", "problem": "it changed while it was read"},
    }
    files = {"new": b"n", "m": b"better"}

    def change(piece):
        return msgspec.structs.replace(piece, **changes[broken]) if piece.name == "m" else piece

    _, taken = stand.bring(files, change=change, last=True)
    assert taken.left_out == 1
    assert (stand.cluster.run_dir / "output" / "m").read_bytes() == b"good"
    stand.ask(m.OutputSettled(rank=0, place="/tmp/there"))
    assert (
        "output of chief:0: 1 file of 6 bytes was not copied here (it changed while it was read); it is"
        in stand.notes[0]
    )


def test_only_what_is_stored_is_told_of_as_copied(output):
    stand = output()
    stand.ask(listed({"gone": b"x" * 300, "rest": b"z" * 1_300}))
    stand.ask(m.FilePiece("output", "gone", 0, b"", "it is not there any more", rank=0))
    assert stand.notes == ("output of chief:0: 0 bytes of 1,600 bytes copied here",)
    assert stand.ask(piece("rest", b"z" * 1_300)) == [m.FilesTaken("output", 1, left_out=1)]
    assert stand.notes == ()


def test_what_a_lost_node_has_brought_to_the_end_is_not_said_to_be_lost(output):
    stand = output()
    stand.ask(listed({"m": b"xx"}, last=True))
    stand.nodes.deaf.add(0)
    stand.cluster.head.lose(0, "Spark has ended its task")
    assert eventually(lambda: stand.cluster.nodes[1].state.ended)
    stand.nodes.settle()
    assert stand.cluster.output.awaited == (0,)
    stand.nodes.send(piece("m", b"xx"))
    stand.nodes.send(m.OutputSettled(rank=0))
    stand.cluster.head.join(PATIENCE_S)
    assert stand.stored() == {"m"}
    assert [note for note in stand.notes if "was lost" in note] == []


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_list_that_comes_after_the_ends_of_all_nodes_begins_no_transfer(stand, restarts):
    stand = stand(restarts=restarts)
    head, listener = stand.cluster.head, stand.nodes.listener
    stand.nodes.deaf.update([0, 1])
    stand.nodes.kill(1)
    stand.nodes.settle()
    stand.nodes.deaf.clear()
    ends = [m.Ended(rank=0, outcome=m.Outcome(kind="stopped")), m.Drained(rank=0), m.Drained(rank=1)]
    listener.deliver_at_once(*ends, listed({"m": b"x"}))
    head.join(PATIENCE_S)
    assert stand.cluster.ended == (restarts == 0)
    assert stand.cluster.output.awaited == ()


ELSEWHERE = ["../m", "/etc/m", "a/../../m", "a//m", "..", "", "a/\0", "x" * 256]
NO_EVENTS = ["../a.tfevents", "/etc/a.tfevents", "notes.txt", "a.tfevents/b"]


@pytest.mark.parametrize(
    ("folder", "name"), [*(("output", name) for name in ELSEWHERE), *(("events", name) for name in NO_EVENTS)]
)
def test_a_name_that_leads_elsewhere_or_of_another_file_than_is_meant_is_not_asked_for(output, tmp_path, folder, name):
    stand = output(log_dir=str(tmp_path / "there"))
    names, taken = stand.bring({name: b"x"}, folder=folder, last=True)
    assert (names, stand.stored(folder)) == ([], set())
    assert folder == "events" or taken == m.FilesTaken("output", 1, left_out=1)


def test_what_was_not_asked_for_is_not_stored(output):
    stand = output()
    assert stand.ask(piece("m", b"x")) == []
    stand.ask(listed({"m": b"xx"}))
    assert stand.ask(piece("n", b"xx")) == []
    assert stand.stored() == set()


def test_symbolic_links_are_not_followed(output, tmp_path):
    stand = output()
    home, outside = stand.cluster.run_dir / "output", tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    home.mkdir(exist_ok=True)
    (home / "folder").symlink_to(outside)
    (home / "file").symlink_to(outside / "file")
    # What was left there by somebody else is removed, not written through.
    assert stand.bring({"folder/m": b"x", "file": b"x"})[1].left_out == 1
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"file": "mine"}
    assert (home / "file").read_text() == "x"


def leave(monkeypatch, size_bytes):
    """Have the driver's disk have no more room than this."""
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: SimpleNamespace(total=0, free=size_bytes))


def test_the_newest_files_that_fit_are_stored_and_removed_ones_make_room(output, monkeypatch):
    stand = output()
    leave(monkeypatch, 10)
    assert stand.bring({"a": b"x" * 6, "b": b"x" * 6}) == (["a"], m.FilesTaken("output", 1, left_out=1))
    assert stand.bring({"b": b"x" * 10}) == (["b"], m.FilesTaken("output", 2))
    assert stand.stored() == {"b"}


def test_a_list_with_a_size_below_zero_ends_its_sender(output):
    stand = output()
    stand.nodes.send(m.FilesListed("output", 1, [m.ListedFile("a", -100), m.ListedFile("b", 100)], rank=0))
    assert eventually(lambda: stand.cluster.ended)
    assert "chief:0 sent what no node sends" in str(stand.cluster.head.failure())


def test_what_a_node_has_written_by_relative_paths_is_noted_once_if_it_is_not_copied(stand):
    stand = stand()
    for _ in range(2):
        stand.ask(m.OutputSettled(rank=1, dropped=2, dropped_bytes=500))
    what = "worker:0 has written 2 files of 500 bytes by relative paths, removed with the node"
    assert stand.notes == (f"{what}: collect='all' copies them here",)


# ---- large results --------------------------------------------------------------------------------------------------


def offer(stand, rank=0, size_bytes=100, name=None):
    node = name or ("chief-0" if rank == 0 else f"worker-{rank - 1}")
    return stand.ask(m.FilesListed("result", 1, [m.ListedFile(node, size_bytes)], last=True, rank=rank))


@pytest.mark.parametrize("name", ["../run.json", "worker-0"])
def test_a_result_of_another_name_is_not_asked_for(stand, name):
    stand = stand()
    assert offer(stand, name=name) == [m.FilesTaken("result", 1, problem="it was not to come")]
    assert stand.ask(m.FilePiece("result", name, 0, b"x" * 100, rank=0)) == []


def test_a_result_that_cannot_be_read_is_refused_with_the_reason(stand):
    stand = stand()

    def change(piece):
        return msgspec.structs.replace(piece, data=b"", problem="No space left on device")

    _, taken = stand.bring({"chief-0": b"x" * 100}, folder="result", change=change)
    assert taken.problem == "the result (0.0 MB) could not be brought to the notebook: No space left on device"


def test_a_result_that_the_disk_has_no_space_for_is_refused_with_both_numbers(stand, monkeypatch):
    stand = stand()
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: SimpleNamespace(free=5_000_000, total=40_000_000))
    assert isinstance(offer(stand, 0, 2_000_000)[0], m.PieceWanted)
    [refused] = offer(stand, 1, 1_500_000)
    assert "it takes 1.5 MB, and the disk there has room for 1.0 MB. Free some space" in refused.problem


# ---- event files ----------------------------------------------------------------------------------------------------


@pytest.fixture
def chief(stand, tmp_path):
    """The chief writes its event files into a folder that may be on another host."""
    return stand(log_dir=str(tmp_path / "there"))


def bring(chief, files, **more):
    return chief.bring(files, folder="events", **more)


def shown_probe(nodes):
    """Return the file by which the chief was shown the folder for event files."""
    return eventually(lambda: [one.events_probe for _, one in nodes.listener.sent if isinstance(one, m.Start)])[0]


def test_a_chief_is_shown_the_folder_by_a_file_in_it_that_goes_with_the_run(chief, tmp_path):
    probe = Path(shown_probe(chief.nodes))
    assert probe.parent == tmp_path, "the part of the folder that is there"
    assert probe.exists()
    chief.cluster.stop(grace=0.0)
    assert not probe.exists()
    assert not (tmp_path / "there").exists(), "who writes there makes it: it may be another user"


def test_event_files_of_a_chief_that_starts_again_follow_those_that_were_brought(stand, tmp_path):
    chief = stand(log_dir=str(tmp_path / "there"), restarts=1)
    bring(chief, {"a.tfevents": b"x"})
    chief.nodes.kill(1)
    eventually(lambda: len(chief.nodes.listeners) == 2)
    assert shown_probe(chief.nodes) == ""


def test_event_files_of_another_host_are_brought_into_the_run_s_folder(chief):
    assert bring(chief, {"train/a.tfevents": b"one "})[1] == m.FilesTaken("events", 1)
    home = chief.cluster.run_dir / "events"
    assert (home / "train" / "a.tfevents").read_bytes() == b"one "
    [wanted] = chief.ask(listed({"train/a.tfevents": b"one two"}, folder="events", number=2))
    assert (wanted.offset, wanted.size_bytes, wanted.changed_ns) == (4, 3, 0)
    bring(chief, {"train/a.tfevents": b"one two"}, last=True)
    assert (home / "train" / "a.tfevents").read_bytes() == b"one two"
    assert chief.notes == (f"event files: 1 brought from the chief's host into {home}",)


def test_event_files_that_stay_on_the_chief_s_host_are_told(chief):
    files = [m.ListedFile("a.tfevents", 2), *(m.ListedFile(f"{name}.tfevents", 300 << 20) for name in "bc")]
    [wanted] = chief.ask(m.FilesListed("events", 1, files, last=True, rank=0))
    assert chief.ask(m.FilePiece("events", wanted.name, 0, b"xx", rank=0)) == [m.FilesTaken("events", 1, left_out=2)]
    assert "event files: 1 brought" in chief.notes[0]
    assert "629.1 MB of 2 stay there in" in chief.notes[0]
