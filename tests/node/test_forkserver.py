"""Fork servers: one warm process for equal environments, private to its user, and swept up when it has ended."""

import ast
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.eventually import eventually
from tests.support.processes import gone
from tests.support.quick import QUICK_ENV
from tfos_lab.node.forkserver.health import ServerRecord, lock_path

# ---- one for equal environments -------------------------------------------------------------------------------------


# Prints the fork server before and after what `cluster.model()` makes a kernel import, and what a node has imported at
# its start, when it has trained, and when it has used what Keras has for scikit-learn and matplotlib. That is then like
# any module.
_KERNEL = """
import json, os
import tfos_lab

def imported():
    import sys
    return [name for name in ("pandas", "sklearn", "matplotlib") if name in sys.modules]

def train():
    found = [imported()]
    import inspect, keras, numpy as np, pickle, tensorflow as tf
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    rows = np.ones((4, 2), "float32")
    model.fit(rows, rows[:, :1], verbose=2)
    model.fit(tf.data.Dataset.from_tensor_slices((rows, rows[:, :1])).batch(2), verbose=2)
    model.summary()
    inspect.stack()  # goes through all modules and looks at their files
    found.append(imported())
    assert "plot_image_gallery" in dir(keras.visualization)
    wrapper = keras.wrappers.SKLearnRegressor(model)
    from tensorflow.keras.visualization import plot_image_gallery
    import sklearn.base
    assert isinstance(wrapper, sklearn.base.RegressorMixin)
    assert pickle.loads(pickle.dumps(type(wrapper))) is tf.keras.wrappers.SKLearnRegressor
    names = {}
    exec("from keras.visualization import *", names)
    assert names["plot_image_gallery"] is plot_image_gallery
    assert not hasattr(keras.visualization, "absent")
    assert "plot_image_gallery" in inspect.getsource(keras.visualization)
    return os.getppid(), [*found, imported()]

def on_a_node(function):
    return tfos_lab.run(function, cluster_size=1, local="processes").wait(timeout=100)["chief:0"]

before = on_a_node(os.getppid)
import keras, sklearn, tensorflow
keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
print(json.dumps([before, *on_a_node(train)]))
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    environ = os.environ | {"TFOS_LAB_RUNS": str(tmp_path_factory.mktemp("runs"))}
    done = subprocess.run([sys.executable, "-c", _KERNEL], capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.tensorflow
def test_a_kernel_that_has_imported_tensorflow_uses_the_same_fork_server(kernel):
    before, after, _ = kernel
    assert after == before


@pytest.mark.tensorflow
def test_scikit_learn_and_matplotlib_are_imported_when_what_needs_them_is_used_and_not_to_train(kernel):
    *_, found = kernel
    assert found == [["pandas"], ["pandas"], ["pandas", "sklearn", "matplotlib"]]


def test_the_record_of_a_fork_server_takes_the_place_of_a_longer_one(tmp_path):
    path = tmp_path / "plain-1.sock"
    with subprocess.Popen([sys.executable, "-c", "input()", str(path)], stdin=subprocess.PIPE) as server:
        lock = os.open(lock_path(path), os.O_RDWR | os.O_CREAT)
        ServerRecord(10_000_000 + server.pid, 123456.789, 12.345).write(lock)
        record = ServerRecord(server.pid, 12.345, 0.0)
        record.write(lock)
        os.close(lock)
        assert eventually(lambda: ServerRecord.read(path)) == record  # once the process has its arguments
        server.kill()


OURS = """
import json, sys
import tfos_lab.node.forkserver.main
from tfos_lab.node.forkserver.main import preload
preload("tensorflow")
print(json.dumps([name for name in sys.modules if name.startswith("tfos_lab")]))
"""


def modules_of_ours(args, ctx):
    return [name for name in sys.modules if name.startswith("tfos_lab")]


def test_a_node_imports_nothing_of_ours_that_its_fork_server_might_have_imported(run):
    """It would take half of a start's time."""
    environ = os.environ | QUICK_ENV
    done = subprocess.run([sys.executable, "-c", OURS], capture_output=True, text=True, check=True, env=environ)
    assert set(run(modules_of_ours).result()) - set(json.loads(done.stdout)) == set()


# What Python has only where it was built on a recent Linux.
_LACKING = """
import os, signal
for place, names in ((os, ("eventfd", "memfd_create", "pidfd_open")), (signal, ("pidfd_send_signal",))):
    for name in names:
        delattr(place, name)
"""
_KILLED = """
import os, signal, threading
import tfos_lab

def lacks():
    return os.getppid(), hasattr(os, "pidfd_open")

def wait():
    threading.Event().wait()

run = lambda function: tfos_lab.run(function, cluster_size=2, local="processes")
results = run(lacks).wait()
nodes = [node.pid for node in run(wait).nodes]
print([results["worker:0"], nodes], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nodes_run_and_end_with_their_kernel_in_the_pythons_of_conda_and_uv(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(_LACKING)
    path = os.pathsep.join([str(tmp_path), *QUICK_ENV.values()])
    environ = os.environ | {"PYTHONPATH": path, "TFOS_LAB_RUNS": str(tmp_path / "runs")}
    done = subprocess.run([sys.executable, "-c", _KILLED], stdout=subprocess.PIPE, text=True, check=False, env=environ)
    (fork_server, has_it), nodes = ast.literal_eval(done.stdout.splitlines()[-1])
    assert not has_it
    assert gone([*nodes, fork_server])


# As idle fork servers do; how many huge pages there are at the moment is up to the machine.
PACKED = """
from tfos_lab.core.processes import pack_memory
def held():
    return [[number, str(number)] for number in range(500_000)]
before = held()
assert sum(pack_memory()) >= 0
assert before == held()
"""


def test_a_process_that_is_put_into_huge_pages_holds_what_it_held():
    subprocess.run([sys.executable, "-c", PACKED], check=True)


def test_a_python_that_cannot_start_is_reported_with_the_end_of_its_log(run):
    outcome = run(threading.Event, extra_env={**QUICK_ENV, "PYTHONHOME": "/no/such/folder"}).outcome()
    assert (outcome.kind, outcome.error) == ("raised", "ForkServerUnavailable")
    assert "ended with status 1; its log " in outcome.message
    assert "encodings" in outcome.message


def test_fork_servers_that_end_together_leave_nothing(short_folder):
    folder = short_folder / "owner"
    folder.mkdir()
    code = "from tfos_lab.node.forkserver.main import main; main()"
    for name in ("one", "two", "three"):
        options = ["--kind", "plain", "--socket", str(folder / f"{name}.sock"), "--idle-s", "0.1"]
        subprocess.run([sys.executable, "-c", code, *options], check=True, cwd=Path.cwd())
    eventually(lambda: not folder.exists())


@pytest.mark.parametrize(
    ("began_s_ago", "imports_took_s", "hangs"),
    [(300.0, 0.0, False), (300.0, 290.0, False), (300.0, 200.0, True), (700.0, 0.0, True)],
)
def test_a_fork_server_has_a_minute_to_answer_from_the_end_of_its_imports_on(began_s_ago, imports_took_s, hangs):
    began_s = time.monotonic() - began_s_ago
    assert ServerRecord(1, began_s, imports_took_s).hangs(asked_s=began_s + 1.0) == hangs


# ---- its folder -----------------------------------------------------------------------------------------------------

_OLD_S = 25 * 3600.0


@pytest.fixture
def root(short_folder, monkeypatch):
    """The user's folder, in a place of its own, for fork servers too."""
    monkeypatch.setattr("tempfile.tempdir", str(short_folder))
    root = short_folder / f"tfos_lab-{os.getuid()}"
    root.mkdir(mode=0o700)
    return root


@pytest.fixture
def start_a_node(root, launch):
    """A function that starts and ends a node: its start looks for what others have left."""
    return lambda: launch().close()


def test_the_user_s_folder_is_one_that_nobody_else_can_open(root, run):
    root.rmdir()
    scratch = Path(run(lambda: os.environ["TFOS_LAB_SCRATCH"], owner="private").result())
    assert scratch.parent == root
    assert root.stat().st_mode & 0o777 == 0o700
    root.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", "import tfos_lab; tfos_lab.run(print, cluster_size=1, local='processes').wait()"],
        env=os.environ | {"TMPDIR": str(root.parent), "TFOS_LAB_RUNS": str(root.parent / "runs")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "can be opened by others; remove it, or set TMPDIR" in done.stderr
    root.chmod(0o700)


def aged(path, age_s=_OLD_S):
    then = time.time() - age_s
    os.utime(path, (then, then))
    return path


def leave(root, name, *, age_s=_OLD_S, file="spool.arrow"):
    folder = root / name
    folder.mkdir()
    (folder / file).write_bytes(b"x")
    return aged(folder, age_s)


@contextmanager
def held(folder):
    """Hold a folder as the process does that uses it."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


def test_the_folder_of_a_killed_agent_is_removed_by_the_next_node_and_others_stay(root, start_a_node):
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        ended = process.pid
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


def test_what_is_old_goes_after_its_time_unless_it_is_in_use(root, start_a_node):
    goes = [leave(root, name) for name in ("0123456789ab", "user-0123456789ab", "tmpa1b2c3d4")]
    stays = [leave(root, "0123456789ac", age_s=60.0), leave(root, "code-01234567"), leave(root, "tmpnew", age_s=0.0)]
    used = leave(root, "tmpused")
    with held(used):
        start_a_node()
        assert not any(path.exists() for path in goes)
        assert all(path.exists() for path in (*stays, used))
    start_a_node()
    assert not used.exists()


def test_links_to_a_working_folder_go_after_a_day_with_the_next_node(root, run, tmp_path):
    (root / "links").mkdir()
    old, young = leave(root / "links", "old"), leave(root / "links", "young", age_s=60.0)
    run(print, cwd=str(tmp_path)).outcome()
    assert (old.exists(), young.exists()) == (False, True)


def test_thousands_of_entries_go(root, start_a_node):
    entries = [leave(root, f"{number:012x}") for number in range(1000)]
    while any(path.exists() for path in entries):
        start_a_node()  # which looks for them for 0.2 s


def test_a_folder_with_a_fork_server_stays_however_old_it_is_and_goes_with_it(root, run, start_a_node):
    server = psutil.Process(run(os.getppid, owner=f"stays-{os.getpid()}").result())
    folder = next(path.parent for path in root.rglob("*.sock") if str(path) in server.cmdline())
    aged(folder)
    start_a_node()
    assert list(folder.glob("*.sock"))
    server.kill()
    assert gone([server])
    aged(folder)

    def goes():
        start_a_node()  # each start looks for what others have left, for 0.2 s
        return not folder.exists()

    eventually(goes)
