"""A real child is profiled: its stacks are sampled, and TensorFlow's trace is sent piece by piece."""

from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace

import pytest

from tfos_lab import messages as m
from tfos_lab.node.profile.child import profile_folder, start_profile
from tfos_lab.node.profile.files import ProfileFiles
from tfos_lab.node.profile.sampler import Sampler


def spin(until):
    while not until.is_set():
        sum(range(100))


def waits(thread, event):
    """Whether a thread waits for an event, and not only is about to."""
    with event._cond:
        return bool(event._cond._waiters) and sys._current_frames()[thread.ident].f_code.co_name == "wait"


@pytest.fixture
def spinning():
    """A thread that works, called ``busy``, and one that waits, called ``idle``."""
    end = threading.Event()
    threads = [
        threading.Thread(target=spin, args=(end,), name="busy", daemon=True),
        threading.Thread(target=end.wait, name="idle", daemon=True),
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60.0
    while not waits(threads[1], end) and time.monotonic() < deadline:
        time.sleep(0.001)
    yield
    end.set()
    for thread in threads:
        thread.join()


def test_threads_that_work_are_sampled_and_those_that_wait_are_not(spinning):
    sampler = Sampler()
    thread = threading.Thread(target=sampler.run, args=(0.2,), name="sampler")
    thread.start()
    thread.join()
    stacks = [stack for stack, _ in sampler.samples]
    sampled = {stack[0] for stack in stacks}  # the test's process may have threads of its own
    assert {"\tmain thread", "\tbusy"} <= sampled
    assert "\tidle" not in sampled
    assert any(frame.startswith("\tspin (test_profile.py:") for stack in stacks for frame in stack)


class Profiler:
    """TensorFlow's, as far as it matters."""

    def __init__(self, error=None):
        self.experimental, self._error = self, error

    def start(self, folder):
        if self._error:
            raise self._error
        self._folder = folder

    def stop(self):
        path = profile_folder_file(self._folder)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"trace" * 500_000)


def profile_folder_file(folder):
    from pathlib import Path

    return Path(folder) / "plugins" / "profile" / "host.xplane.pb"


def profiled(tmp_path, monkeypatch, profiler, no_trace=""):
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(profiler=profiler) if profiler else None)
    sent = []
    start_profile(2, m.ProfileWanted(request=5, seconds=0.05, no_trace=no_trace), tmp_path, sent.append)
    deadline = time.monotonic() + 60.0
    while not sent and time.monotonic() < deadline:
        time.sleep(0.01)
    [message] = sent
    return message


def test_a_profile_has_samples_and_the_trace_s_files(tmp_path, monkeypatch):
    message = profiled(tmp_path, monkeypatch, Profiler())
    assert (message.rank, message.request, message.note, message.problem) == (2, 5, "", "")
    assert message.files == {"plugins/profile/host.xplane.pb": 2_500_000}
    assert message.samples


@pytest.mark.parametrize(
    ("profiler", "note"),
    [
        (None, "no trace: this process has not imported TensorFlow"),
        (Profiler(RuntimeError("another one runs")), "did not start (RuntimeError: another one runs)"),
    ],
)
def test_without_a_trace_there_are_samples_and_the_reason(tmp_path, monkeypatch, profiler, note):
    message = profiled(tmp_path, monkeypatch, profiler)
    assert message.note.endswith(note)
    assert message.samples
    assert not message.files


def test_a_trace_that_is_not_wanted_is_not_begun(tmp_path, monkeypatch):
    message = profiled(tmp_path, monkeypatch, Profiler(), no_trace="no trace: it may crash")
    assert (message.note, message.files) == ("no trace: it may crash", {})
    assert message.samples


def test_what_goes_wrong_is_told_and_the_next_one_works(tmp_path, monkeypatch):
    profiler = Profiler()
    with monkeypatch.context() as patched:
        patched.setattr(Sampler, "sample", lambda _self: {}["gone"])
        message = profiled(tmp_path, patched, profiler)
    assert message.problem == "KeyError: 'gone'"
    assert profile_folder_file(profile_folder(tmp_path, 5)).exists(), "the trace that began has ended"
    profile_folder_file(profile_folder(tmp_path, 5)).unlink()
    profile_folder_file(profile_folder(tmp_path, 5)).parent.rmdir()
    assert profiled(tmp_path, monkeypatch, profiler).problem == ""


def test_a_trace_is_sent_piece_by_piece_and_then_removed(tmp_path):
    path = profile_folder_file(profile_folder(tmp_path, 5))
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(range(256)) * 6000)
    sent, to_child = [], []
    files = ProfileFiles(2, tmp_path, sent.append, to_child.append)
    wanted = m.ProfileWanted(request=5, seconds=1.0)
    files.handle(wanted)
    assert to_child == [wanted]
    data = b""
    while not sent or sent[-1].data:
        files.handle(m.ProfilePieceWanted(5, "plugins/profile/host.xplane.pb", len(data)))
        data += sent[-1].data
    assert data == bytes(range(256)) * 6000
    assert not path.exists()
