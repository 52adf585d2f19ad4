"""Files that nodes send to the driver: output, large results and event files; the test plays the nodes that send them.

They are stored complete, in their folder and nowhere else, and never beyond their limit.
"""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import pytest

from tests.support.eventually import eventually
from tests.support.fake_nodes import identity_of
from tfos_lab import messages as m

pytestmark = pytest.mark.leaves_nothing


class Stand:
    """A cluster that runs, and what its nodes are answered."""

    def __init__(self, cluster, nodes):
        self.cluster, self.nodes = cluster, nodes
        self.transfer = 0

    def ask(self, message):
        """Send a node's message; return what it is answered."""
        sent = self.nodes.listener.sent
        before = len(sent)
        self.nodes.send(message)
        self.nodes.send(m.Heartbeat(rank=message.rank))
        mine = identity_of(message.rank)
        eventually(lambda: any(to == mine and isinstance(answer, m.HeartbeatAck) for to, answer in sent[before:]))
        return [answer for to, answer in sent[before:] if to == mine and not isinstance(answer, m.HeartbeatAck)]

    def send(self, name, *pieces, rank=0, checksum=None, folder="output"):
        """Send a file in pieces; return the answer to the last one."""
        self.transfer += 1
        offset, answers = 0, []
        whole = hashlib.sha256(b"".join(pieces)).digest() if checksum is None else checksum
        for number, data in enumerate(pieces, 1):
            last = whole if number == len(pieces) else b""
            answers = self.ask(m.FilePiece(rank, folder, self.transfer, name, offset, data, last))
            offset += len(data)
        return answers[-1] if answers else None

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
    """The chief is on another host and has asked for its output folder."""

    def make(**options):
        made = stand(**options)
        made.ask(m.OutputOpened(rank=0, place="/tmp/there"))
        return made

    return make


def test_a_file_appears_when_it_is_complete_and_is_told_of_while_it_comes(output):
    stand = output()
    stand.ask(m.OutputComes(rank=0, files=2, size_bytes=2_000))
    stand.send("a/m.keras", b"x" * 300, b"y" * 200)
    assert stand.stored() == {"a/m.keras"}
    assert "output of chief:0: 500 bytes of 2,000 bytes copied here" in stand.notes
    stand.ask(m.FilePiece(0, "output", 9, "half", 0, b"half"))
    assert stand.stored() == {"a/m.keras"}
    assert (stand.cluster.run_dir / "output" / "a" / "m.keras").read_bytes() == b"x" * 300 + b"y" * 200


def test_only_the_chief_s_output_is_stored_unless_all_nodes_are_asked(output):
    for options, stored in (({}, {"m"}), ({"collect": "all"}, {"m", "worker-0/m"})):
        stand = output(**options)
        stand.ask(m.OutputOpened(rank=1, place="/tmp/there"))
        for rank in (0, 1):
            stand.send("m", b"x", rank=rank)
        assert stand.stored() == stored


def test_a_file_with_a_wrong_checksum_or_a_missing_piece_may_be_sent_again_and_the_old_one_stays(output):
    stand = output()
    stand.send("m", b"good")
    assert stand.send("m", b"bad", checksum=b"x" * 32) == m.FileKept("output", 2, "its checksum is wrong", again=True)
    stand.ask(m.FilePiece(0, "output", 3, "m", 0, b"one"))
    [*_, kept] = stand.ask(m.FilePiece(0, "output", 3, "m", 5, b"x"))
    assert kept == m.FileKept("output", 3, "a piece is missing", again=True)
    assert (stand.cluster.run_dir / "output" / "m").read_bytes() == b"good"


@pytest.mark.parametrize("name", ["../m", "/etc/m", "a/../../m", "a//m", "..", "", "a/\0", "x" * 256])
def test_a_name_that_leads_elsewhere_is_refused(output, name):
    stand = output()
    assert stand.send(name, b"x") == m.FileKept("output", 1, "it was not to come", again=False)
    assert stand.stored() == set()


def test_symbolic_links_are_not_followed(output, tmp_path):
    stand = output()
    home, outside = stand.cluster.run_dir / "output", tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    home.mkdir(exist_ok=True)
    (home / "folder").symlink_to(outside)
    (home / "file").symlink_to(outside / "file")
    assert stand.send("folder/m", b"x").problem == "it was not to come"
    stand.ask(m.OutputGone(rank=0, names=["folder/file"]))
    # What was left there by somebody else is removed, not written through.
    assert stand.send("file", b"x").problem == ""
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"file": "mine"}
    assert (home / "file").read_text() == "x"


def test_no_more_than_the_limit_is_stored_and_removed_files_make_room(output):
    stand = output(output_limit_bytes=10)
    assert stand.send("a", b"x" * 6).problem == ""
    assert stand.send("b", b"x" * 6).problem == "more than 10 bytes"
    stand.ask(m.OutputGone(rank=0, names=["a", "../../run.json", "nothing"]))
    assert stand.send("b", b"x" * 3, b"x" * 7).problem == ""
    assert stand.stored() == {"b"}


def test_what_stays_on_the_node_s_host_is_noted_with_its_place(output):
    stand = output(output_limit_bytes=1_000)
    sent = {"left_out": 2, "left_out_bytes": 3_200_000_000, "place": "/tmp/there", "links": 1}
    stand.ask(m.OutputSent(rank=0, **sent))
    kept, links = stand.notes
    assert kept == (
        "output of chief:0: 2 files of 3,200.0 MB were not copied here (output_limit_bytes=1,000 is reached); they are "
        "on fake in /tmp/there"
    )
    assert links == "output of chief:0: 1 symbolic link was not copied here"


def test_what_a_node_has_written_by_relative_paths_is_noted_once_if_it_is_not_copied(stand):
    stand = stand()
    for _ in range(2):
        stand.ask(m.OutputSent(rank=1, left_out=2, left_out_bytes=500))
    what = "worker:0 has written 2 files of 500 bytes by relative paths, removed with the node"
    assert stand.notes == (f"{what}: collect='all' copies them here",)


# ---- large results --------------------------------------------------------------------------------------------------


def offer(stand, rank=0, size_bytes=100):
    return stand.ask(m.ResultOffered(rank=rank, size_bytes=size_bytes))


def test_what_was_not_offered_or_is_larger_or_has_another_name_is_not_stored(stand):
    stand = stand()
    assert stand.send("worker-0", b"x", rank=1, folder="result") is None
    offer(stand, 0)
    assert stand.send("../run.json", b"x", folder="result").problem
    assert stand.send("worker-0", b"x", folder="result").problem
    offer(stand, 0)
    assert stand.send("chief-0", b"x" * 101, folder="result").problem


def test_a_few_nodes_send_at_a_time_and_the_next_follows_when_one_has_ended(stand):
    stand = stand(cluster_size=6)
    answers = {rank: offer(stand, rank) for rank in range(6)}
    first = [rank for rank, answer in answers.items() if answer]
    assert first == list(range(len(first)))
    assert len(first) < 6
    for number, rank in enumerate(first):
        stand.nodes.send(m.Ended(rank=rank, outcome=m.Outcome(kind="returned", stored_bytes=100)))
        if number < 6 - len(first):
            eventually(
                lambda number=number: "ResultWanted" in stand.nodes.listener.sent_to(identity_of(len(first) + number))
            )


def test_a_result_that_the_disk_has_no_space_for_is_refused_with_both_numbers(stand, monkeypatch):
    stand = stand()
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: SimpleNamespace(free=5_000_000, total=40_000_000))
    [wanted] = offer(stand, 0, 2_000_000)
    assert isinstance(wanted, m.ResultWanted)
    [refused] = offer(stand, 1, 1_500_000)
    assert "it takes 1.5 MB, and the disk there has room for 1.0 MB. Free some space" in refused.problem


# ---- event files ----------------------------------------------------------------------------------------------------


FOUND = m.EventFilesFound(rank=0, probe=".probe")


@pytest.fixture
def chief(stand, tmp_path):
    """The chief writes its event files into a folder that may be on another host."""
    return stand(log_dir=str(tmp_path / "there"))


def grow(chief, name, data, offset=0):
    """Send a piece of a file, and have it answered."""
    piece = m.EventFilePiece(name, offset, data)
    assert chief.ask(m.EventFilesGrown(rank=0, pieces=[piece])) == [m.EventFilesKept()]


def test_event_files_in_a_folder_that_both_see_stay_there(chief, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / ".probe").touch()
    assert chief.ask(FOUND) == [m.EventFilesWanted(limit_bytes=0)]
    grow(chief, "a.tfevents", b"x")
    assert (chief.stored("events"), chief.notes) == (set(), ())


def test_event_files_of_another_host_are_brought_into_the_run_s_folder(chief):
    [wanted] = chief.ask(FOUND)
    assert wanted.limit_bytes > 0
    grow(chief, "train/a.tfevents", b"one ")
    grow(chief, "train/a.tfevents", b"lost", offset=5)
    grow(chief, "train/a.tfevents", b"two", offset=4)
    assert chief.ask(FOUND)[0].held == {"train/a.tfevents": 7}
    chief.ask(m.EventFilesSent(rank=0))
    home = chief.cluster.run_dir / "events"
    assert (home / "train" / "a.tfevents").read_bytes() == b"one two"
    assert chief.notes == (f"event files: 1 brought from the chief's host into {home}",)


def test_event_files_that_stay_on_the_chief_s_host_are_told(chief):
    chief.ask(FOUND)
    chief.ask(m.EventFilesSent(rank=0, left_out=2, left_out_bytes=512_000_000))
    assert "512.0 MB of 2 stay there in" in chief.notes[0]


@pytest.mark.parametrize("name", ["../a.tfevents", "/etc/a.tfevents", "notes.txt", "a.tfevents/b"])
def test_anything_but_event_files_is_dropped(chief, name):
    chief.ask(FOUND)
    grow(chief, name, b"x")
    chief.ask(m.EventFilesSent(rank=0))
    assert chief.stored("events") == set()
