"""The driver's copy of the logs, of nodes that the test plays: whole in files within their limits, without noise."""

import re
import stat
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.eventually import eventually
from tests.support.fake_nodes import identity_of
from tfos_lab.core import messages as m


class Log:
    """What worker:0 of a cluster writes: what comes of it in the file, in the view and in the notes."""

    def __init__(self, cluster, nodes):
        self.cluster, self.nodes = cluster, nodes
        self.events = cluster.bus.subscribe(capacity=100_000)
        self.pieces = 0

    def write(self, *pieces):
        """Send pieces one by one, and wait until they have been taken."""
        self.pieces += len(pieces)
        for piece in pieces:
            self.nodes.send(m.Logs([m.LogRecord(1.0, "stdout", piece)], rank=1))
        eventually(lambda: self.nodes.listener.sent_to(identity_of(1)).count("LogCredit") == self.pieces)
        return "".join(event.text for event in self.events.take() if hasattr(event, "stream"))

    @property
    def path(self):
        return self.cluster.run_dir / "worker-0.log"

    @property
    def notes(self):
        return list(self.cluster.view().notes)

    def end(self):
        """End the cluster; return its log as a file."""
        self.cluster.stop(grace=0.0)
        return self.path.read_bytes()


@pytest.fixture
def log(start, nodes):
    def make(**options):
        cluster = start(**options)
        cluster.wait_until_running()
        return Log(cluster, nodes)

    return make


def test_bytes_are_stored_unchanged_for_the_user_only_and_read_as_text(log):
    log = log()
    rubbish = bytes(range(256))
    assert log.cluster.logs("worker:0") == ""
    first, second = "naïve ✓".encode()[:-1], "naïve ✓".encode()[-1:]
    assert log.write(first, second, b"\ntwo\nthree\n") == "naïve ✓\ntwo\nthree\n"
    assert log.cluster.logs("worker:0") == "naïve ✓\ntwo\nthree\n"
    assert [log.cluster.logs("worker:0", tail=lines) for lines in (2, 0)] == ["two\nthree", ""]
    log.write(rubbish)
    assert log.end() == first + second + b"\ntwo\nthree\n" + rubbish
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600


# ---- a log that is not whole ----------------------------------------------------------------------------------------


def test_a_full_disk_leaves_out_the_middle_and_says_how_much(log, monkeypatch):
    line = "x" * 1000
    lines = [b"".join(f"{line} {number + of:06d}\n".encode() for of in range(100)) for number in range(0, 40_000, 100)]
    whole = b"".join(lines)
    log = log()
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: SimpleNamespace(total=0, free=0))
    log.write(*lines)
    [note] = log.notes
    assert "(the disk is nearly full): nodes go on, files say how much is missing" in note
    begin, missing, end = re.split("\n… ([\\d,]+) bytes are missing here …\n".encode(), log.end())
    assert whole.startswith(begin)
    assert 16 << 20 <= len(begin) <= 17 << 20
    assert whole.endswith(end)
    assert len(end) >= 1 << 16
    assert len(begin) + int(missing.replace(b",", b"")) + len(end) == len(whole)


def test_part_of_the_disk_stays_free(log, monkeypatch):
    log = log()
    left = 5_000_000  # of a small disk, 5 %
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: SimpleNamespace(total=100_000_000, free=left - 1))
    log.write(*[b"x" * 999_999 + b"\n"] * 40)
    [note] = log.notes
    assert "(the disk is nearly full)" in note
    assert b" bytes are missing here" in log.end()
    assert log.path.stat().st_size < 20_000_000


# ---- lines that mislead ----------------------------------------------------------------------------------------------


SHUFFLE = (
    "/x/keras/src/trainers/epoch_iterator.py:74: UserWarning: `shuffle=True` was passed, but will be ignored since the "
    "data `x` was provided as a tf.data.Dataset. The Dataset is expected to already be shuffled.\n"
    "  self.data_adapter = data_adapters.get_data_adapter(\n"
)
CUDA = "E0000 00:00:1795319214.6 17102 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: {}\n"
NO_GPU = CUDA.format("Failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected")
WRONG_DRIVER = CUDA.format(
    "Failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver"
)
GENERATOR = (
    "W0000 00:00 17 dataset.cc:997] Input of GeneratorDatasetOp::Dataset will not be optimized because the dataset "
    "does not implement the AsGraphDefInternal() method needed.\n"
)
ABORTED = (
    "E0000 00:00:1795746267.670476    4566 base_collective_executor.cc:252] BaseCollectiveExecutor::StartAbort "
    "FAILED_PRECONDITION: FeedError: worker:0 has returned while chief:0 still trains: give all nodes equally many "
    "steps, or wrap the dataset in ctx.even(dataset) [tfos_lab:FeedError:eJwtiksOwjAMRK8yygokhFj3NlYzkIjiFNttqVD]\n"
)


@pytest.mark.parametrize("noise", [SHUFFLE, NO_GPU, GENERATOR, ABORTED])
def test_misleading_lines_are_left_out_of_the_view_and_their_neighbours_are_not(log, noise):
    log = log()
    whole = f"Epoch 1/2\n{noise}  two spaces\n".encode()
    assert log.write(whole) == "Epoch 1/2\n  two spaces\n"
    assert log.write(*whole.splitlines(keepends=True)) == "Epoch 1/2\n  two spaces\n"
    assert log.end() == whole * 2


def test_lines_that_look_alike_are_shown(log):
    log = log()
    for line in (WRONG_DRIVER, "a.py:3: UserWarning: mine\n  f()\n", "cuInit is fine\n", "I said `shuffle=True` was\n"):
        assert log.write(line.encode()) == line


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.sampled_from(["1/7\r", "Epoch\n", "\n", "no end", "é "]), max_size=8), st.data())
def test_other_text_that_arrives_in_pieces_is_shown_whole(one_log, parts, data):
    text = "".join([*parts, "\n"])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    pieces = [text[a:b].encode() for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert one_log.write(*pieces) == text


@pytest.fixture
def one_log(log):
    """One for all examples."""
    return log()
