"""Fork servers: one warm process for equal environments, which ends with its kernel, is replaced, and is swept up."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.node.conftest import launch_spec
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.fork_servers import wait_until_warm
from tests.support.quick import QUICK_ENV
from tfos_lab.node.agent import Agent
from tfos_lab.node.forkserver.client import ForkServerSpec
from tfos_lab.transport.listener import Listener


@pytest.fixture
def kernel():
    """A process that fork servers end with."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.fixture
def told():
    """What is said of fork servers."""
    return []


@pytest.fixture
def owner(request):
    return f"{request.node.name}-{os.getpid()}"


@pytest.fixture
def spec(kernel, owner, told):
    """A quick fork server of the kernel's."""
    spec = ForkServerSpec.tensorflow(owner, dict(os.environ), kernel.pid, QUICK_ENV)
    yield replace(spec, tell=told.append)
    for process in processes_of(spec):
        process.kill()


def processes_of(spec):
    """Return the fork servers of a spec: those that listen, or are about to, and not what they have forked."""
    found = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if str(spec.socket_path) in process.cmdline():
                found[process.pid] = process
    return [process for process in found.values() if process.ppid() not in found]


def server_of(spec):
    wait_until_warm(spec)
    (process,) = processes_of(spec)
    return process


def gone(process):
    return eventually(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)


def stop(process):
    """Stop a process, and wait until it is."""
    process.suspend()
    eventually(lambda: process.status() == psutil.STATUS_STOPPED)


# ---- one for equal environments -------------------------------------------------------------------------------------


def forever():
    threading.Event().wait()


def test_equal_environments_mean_the_same_fork_server_and_others_another(run):
    plain = [run(os.getppid).result() for _ in range(2)]
    legacy = run(os.getppid, extra_env={**QUICK_ENV, "TF_USE_LEGACY_KERAS": "1"}).result()
    assert plain == [plain[0]] * 2
    assert legacy != plain[0]


def test_many_clients_at_once_start_one_fork_server(spec):
    threads = [threading.Thread(target=wait_until_warm, args=[spec]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(processes_of(spec)) == 1


def test_variables_that_are_read_at_import_choose_the_fork_server():
    def path(environ, **env):
        return ForkServerSpec.tensorflow("owner", environ, 0, env).socket_path

    plain = path({"HOME": "/h"})
    assert plain == path({"HOME": "/elsewhere", "TF_CONFIG": "{}", "USER": "me"})
    others = [path({}, ANY="x"), *(path({name: "1"}) for name in ("KERAS_BACKEND", "LD_LIBRARY_PATH", "TF_X"))]
    assert len({plain, *others}) == 5


# Prints the address before and after what `cluster.model()` makes a kernel import.
_IMPORT = """
import json, os
from tfos_lab.node.forkserver.client import ForkServerSpec
def address():
    return str(ForkServerSpec.tensorflow("owner", dict(os.environ), os.getpid(), {}).socket_path)
before = address()
import keras, sklearn, tensorflow
keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
print(json.dumps([before, address()]))
"""


@pytest.mark.tensorflow
def test_a_kernel_that_has_imported_tensorflow_uses_the_same_fork_server():
    done = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True)
    before, after = json.loads(done.stdout.splitlines()[-1])
    assert after == before


# Trains in a forked process, and then uses what Keras has for scikit-learn and matplotlib. Prints what is imported.
EXTRAS = """
import json, os, sys
from tfos_lab.node.preload import preload
preload("tensorflow")
def imported():
    return [name for name in ("pandas", "sklearn", "matplotlib") if name in sys.modules]
if os.fork() == 0:
    import keras, numpy as np, pickle, tensorflow as tf
    found = [imported()]
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    rows = np.ones((4, 2), "float32")
    model.fit(rows, rows[:, :1], verbose=2)
    model.fit(tf.data.Dataset.from_tensor_slices((rows, rows[:, :1])).batch(2), verbose=2)
    model.summary()
    found.append(imported())
    wrapper = keras.wrappers.SKLearnRegressor(model)
    from tensorflow.keras.visualization import plot_image_gallery
    import sklearn.base
    assert isinstance(wrapper, sklearn.base.RegressorMixin)
    assert pickle.loads(pickle.dumps(type(wrapper))) is tf.keras.wrappers.SKLearnRegressor
    print(json.dumps([*found, imported()]), flush=True)
    os._exit(0)
sys.exit(os.wait()[1])
"""


@pytest.mark.tensorflow
def test_scikit_learn_and_matplotlib_are_imported_when_what_needs_them_is_used_and_not_to_train():
    done = subprocess.run([sys.executable, "-c", EXTRAS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    everything = ["pandas", "sklearn", "matplotlib"]
    assert json.loads(done.stdout.splitlines()[-1]) == [["pandas"], ["pandas"], everything]


def test_a_python_that_cannot_start_is_reported_with_the_end_of_its_log(run):
    outcome = run(forever, extra_env={**QUICK_ENV, "PYTHONHOME": "/no/such/folder"}).outcome()
    assert (outcome.kind, outcome.error) == ("raised", "ForkServerUnavailable")
    assert "ended with status 1; its log " in outcome.message
    assert "encodings" in outcome.message


def test_sockets_are_in_a_folder_that_nobody_else_can_open(monkeypatch, short_folder):
    monkeypatch.setattr("tempfile.tempdir", str(short_folder))
    root = ForkServerSpec.plain("owner", {}, 0).socket_path.parent.parent
    assert root.parent == short_folder
    assert root.stat().st_mode & 0o777 == 0o700
    root.chmod(0o755)
    with pytest.raises(PermissionError, match="can be opened by others; remove it, or set TMPDIR"):
        _ = ForkServerSpec.plain("owner", {}, 0).socket_path


def test_a_deep_temporary_folder_does_not_break_unix_sockets(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("deep" * 30)))
    assert len(str(ForkServerSpec.plain("owner", {}, 0).socket_path)) < 108


# Text that is none, values within values without end, and a frame of 4 GB.
_TEXT = b"\x81\xa4type\xa4\xff\xff\xff\xff"


GARBAGE = [struct.pack("!I", len(_TEXT)) + _TEXT, struct.pack("!I", 1 << 20) + b"\x91" * (1 << 20), b"\xff" * 100]


def test_garbage_and_slow_clients_do_not_keep_others_from_being_served(spec):
    server = server_of(spec)

    def connect():
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(PATIENCE_S)
        client.connect(str(spec.socket_path))
        return client

    with connect(), connect() as half:
        half.sendall(struct.pack("!I", 1000) + b"half a frame")
        for garbage in (*GARBAGE, b"\0\0\0\x09\xc1 garbage"):
            with connect() as sender:
                with suppress(OSError):
                    sender.sendall(garbage)
                with suppress(ConnectionResetError):
                    assert sender.recv(1) == b"", "it is dropped"
        assert server_of(spec) == server


# ---- its end --------------------------------------------------------------------------------------------------------


def test_a_process_dies_with_its_fork_server_which_is_replaced_for_the_next_one(run, owner):
    node = run(forever, owner=owner)
    child = psutil.Process(node.pid)
    server = child.parent()
    server.kill()
    assert gone(child)
    assert node.outcome().kind == "exited"
    assert run(os.getppid, owner=owner).result() != server.pid


def test_a_fork_server_ends_with_its_kernel_and_ends_what_it_has_forked(run, spec, kernel, owner):
    node = run(forever, owner=owner, watched_pid=kernel.pid)
    child = psutil.Process(node.pid)
    server = child.parent()
    assert processes_of(spec) == [server]
    kernel.kill()
    assert gone(server)
    assert gone(child)
    assert not spec.socket_path.exists()


def test_a_fork_server_of_two_kernels_stays_until_both_have_ended(spec, kernel):
    server = server_of(spec)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        wait_until_warm(replace(spec, watched_pid=other.pid))
        kernel.kill()
        kernel.wait()
        wait_until_warm(replace(spec, watched_pid=other.pid))
        assert processes_of(spec) == [server]
        other.kill()
    assert gone(server)


def test_a_fork_server_exits_when_it_has_been_idle(tmp_path):
    path = tmp_path / "idle.sock"
    code = "from tfos_lab.node.forkserver.main import main; main()"
    options = ["--kind", "plain", "--socket", str(path), "--idle-s", "0.1"]
    subprocess.run([sys.executable, "-c", code, *options], check=True, cwd=Path.cwd())
    eventually(lambda: not path.exists())


# ---- one that does not answer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_warm", [True, False], ids=["warm", "maybe importing"])
def test_a_stopped_fork_server_is_replaced_and_told(spec, told, is_warm):
    if is_warm:
        wait_until_warm(spec)
    else:
        spec.warm()
    (stopped,) = processes_of(spec)
    stop(stopped)
    wait_until_warm(spec)
    assert gone(stopped)
    assert told == [
        f"TensorFlow's fork server (process {stopped.pid}) was stopped: it has been replaced by another one"
    ]
    assert server_of(spec) != stopped


def test_a_fork_server_without_its_socket_is_replaced_and_told(spec, told):
    lost = server_of(spec)
    spec.socket_path.unlink()
    wait_until_warm(spec)
    assert gone(lost)
    assert told == [
        f"TensorFlow's fork server (process {lost.pid}) had lost its socket: it has been replaced by another one"
    ]


# ---- what is left ---------------------------------------------------------------------------------------------------

_OLD_S = 25 * 3600.0


@pytest.fixture
def root(short_folder, monkeypatch):
    """The user's folder, in a place of its own, for fork servers too."""
    monkeypatch.setattr("tempfile.tempdir", str(short_folder))
    return ForkServerSpec.plain("owner", {}, 0).socket_path.parent.parent


@pytest.fixture
def ended():
    """The pid of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def start_a_node():
    """Start and end a node: its start looks for what others have left."""
    driver = Listener()
    Agent(launch_spec(driver=driver.address), None).close()
    driver.close()


def aged(path, age_s=_OLD_S):
    then = time.time() - age_s
    os.utime(path, (then, then))
    return path


def leave(root, name, *, age_s=_OLD_S, file="spool.arrow"):
    folder = root / name
    folder.mkdir()
    (folder / file).write_bytes(b"x")
    return aged(folder, age_s)


def test_the_folder_of_a_killed_agent_is_removed_by_the_next_node_and_others_stay(root, ended):
    killed = leave(root, f"cluster-20261121-1-{ended}", age_s=100.0)
    stay = [
        leave(root, f"cluster-0-{os.getpid()}", age_s=100.0),
        leave(root, f"recent-0-{ended}", age_s=0.0),
        leave(root, f"code-{ended}", age_s=100.0),
        leave(root, f"in-another-container-1-{ended}", age_s=100.0),
    ]
    with held(stay[-1]):
        start_a_node()
        assert [path.exists() for path in (killed, *stay)] == [False, True, True, True, True]


@contextmanager
def held(folder):
    """Hold a folder as the process does that uses it."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


def leave_note(root, name):
    (root / name).touch()
    return aged(root / name)


def test_what_is_old_goes_after_its_time_unless_it_is_in_use(root):
    goes = [leave(root, name) for name in ("0123456789ab", "user-0123456789ab", "tmpa1b2c3d4")]
    goes.append(leave_note(root, "c-0-1.failed"))
    stays = [leave(root, "0123456789ac", age_s=60.0), leave(root, "code-01234567"), leave(root, "tmpnew", age_s=0.0)]
    used = leave(root, "tmpused")
    with held(used):
        start_a_node()
        assert not any(path.exists() for path in goes)
        assert all(path.exists() for path in (*stays, used))
    start_a_node()
    assert not used.exists()


def test_thousands_of_entries_go(root):
    entries = [leave(root, f"{number:012x}") for number in range(1000)]
    entries += [leave_note(root, f"c-{number}-1.failed") for number in range(1000)]
    eventually(lambda: start_a_node() or not any(path.exists() for path in entries))


@pytest.fixture
def swept(root, kernel):
    """The warm fork server of the kernel, in the user's folder."""
    spec = ForkServerSpec.tensorflow(f"kernel {kernel.pid}", dict(os.environ), kernel.pid, QUICK_ENV)
    wait_until_warm(spec)
    yield spec
    for process in processes_of(spec):
        process.kill()


def end(kernel):
    kernel.kill()
    kernel.wait()


def test_a_folder_with_a_fork_server_stays_however_old_it_is_and_goes_with_it(root, swept, kernel):
    folder, server = aged(swept.socket_path.parent), server_of(swept)
    aged(folder)
    start_a_node()
    assert swept.socket_path.exists()
    end(kernel)
    assert gone(server)
    start_a_node()
    assert folder.exists(), "its log may be wanted"
    aged(folder)
    start_a_node()
    assert not folder.exists()


def test_a_fork_server_starts_in_a_folder_that_has_been_removed(root, swept):
    other = ForkServerSpec.plain("another kernel", dict(os.environ), swept.watched_pid)
    folder = aged(other.socket_path.parent)
    start_a_node()
    assert not folder.exists()
    other.warm()
    assert processes_of(other)


def test_a_stopped_fork_server_whose_kernel_was_killed_is_killed_by_the_next_node(swept, kernel):
    server = server_of(swept)
    stop(server)
    start_a_node()
    assert server.status() == psutil.STATUS_STOPPED, "its kernel will replace it"
    end(kernel)
    start_a_node()
    assert gone(server)


def test_the_other_fork_server_of_a_kernel_that_was_killed_kills_a_stopped_one(swept, kernel):
    plain = ForkServerSpec.plain(f"kernel {kernel.pid}", dict(os.environ), kernel.pid)
    stopped, other = server_of(swept), server_of(plain)
    stop(stopped)
    end(kernel)
    assert gone(stopped)
    assert gone(other)


def test_a_stopped_fork_server_that_another_kernel_uses_stays(swept, kernel):
    server = server_of(swept)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        wait_until_warm(replace(swept, watched_pid=other.pid))
        stop(server)
        end(kernel)
        start_a_node()
        assert server.status() == psutil.STATUS_STOPPED
        other.kill()
    start_a_node()
    assert gone(server)
