"""Fork servers that outlive kernels: who finds them, what does not go from one kernel to the next, and how they end."""

import os
import resource
import signal
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.support.eventually import eventually
from tests.support.kernels import Kernels, told
from tests.support.processes import gone

# Runs a node, which says what it has inherited, and looks at its agent meanwhile.
_INHERITED = """
def inherited(args, ctx):
    import os, resource, time
    from pathlib import Path
    status = Path("/proc/self/status").read_text()
    found = {
        "parent": os.getppid(),
        "secret": os.environ.get("SECRET"),
        "umask": next(line.split()[1] for line in status.splitlines() if line.startswith("Umask:")),
        "limit": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "first_environ": "SECRET" in Path("/proc/self/environ").read_text(),
    }
    while not Path(args).exists():
        time.sleep(0.02)
    return found

import psutil
cluster = run(inherited, "go")
[plain] = [server for server in warm_servers() if server.kind == "plain"]
[agent] = [child.pid for child in psutil.Process(plain.pid).children() if child.status() != "zombie"]
agent_state = {"cwd": os.readlink(f"/proc/{agent}/cwd"), "is_user": os.getpid() in plain.users}
Path("go").touch()
[found] = dict(cluster.wait()).values()
tell({**found, **agent_state, "servers": servers()})
"""
_LOWER_LIMIT = """
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft // 2, hard))
"""
_RUNS = """
cluster = run(lambda args, ctx: __import__("os").getppid())
parent = dict(cluster.wait())["chief:0"]
tell([servers(), parent])
"""
_WAITS = """
cluster = run(lambda args, ctx: __import__("threading").Event().wait())
cluster.wait_until_running()
tell([servers(), [node.pid for node in cluster.nodes]])
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def kernels():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        kernels = Kernels(Path(folder))
        yield kernels
        kernels.close()


def test_a_second_kernel_finds_the_first_ones_fork_servers_and_nothing_else_of_it(kernels, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    one = kernels.outcome(_INHERITED, cwd=first, umask=0o022, SECRET="of the first")
    other = kernels.outcome(_LOWER_LIMIT + _INHERITED, cwd=second, umask=0o027)
    assert one["servers"] == other["servers"]
    assert one["parent"] == other["parent"] == one["servers"]["tensorflow"]
    assert (one["secret"], other["secret"]) == ("of the first", None)
    assert not one["first_environ"]
    assert (one["umask"], other["umask"]) == ("0022", "0027")
    assert (one["limit"], other["limit"]) == (limit, limit // 2)
    assert (one["cwd"], other["cwd"]) == (str(first), str(second))
    assert one["is_user"]
    assert other["is_user"]


def test_two_kernels_that_start_one_at_the_same_moment_share_it(kernels):
    kernels.outcome("from tfos_lab.driver.warm_servers import end_warm_servers; tell(end_warm_servers())")
    with kernels.start(_RUNS) as one, kernels.start(_RUNS) as other:
        (_, one_parent), (servers, other_parent) = told(one), told(other)
    assert one_parent == other_parent == servers["tensorflow"]
    assert len(kernels.fork_servers()) == 2


def test_a_stopped_one_is_replaced_told_in_the_cell_and_the_run_goes_on(kernels):
    [before, _] = kernels.outcome(_RUNS)
    for pid in before.values():
        os.kill(pid, signal.SIGSTOP)
    code = _RUNS + "tell(list(cluster.view().notes))"
    with kernels.start(code) as kernel:
        after, parent = told(kernel)
        notes = told(kernel)
    assert parent == after["tensorflow"]
    assert not set(before.values()) & set(after.values())
    assert [note for note in notes if "fork server" in note] == [
        f"TensorFlow's fork server (process {before['tensorflow']}) was stopped: it has been replaced by another one",
        f"the agents' fork server (process {before['plain']}) was stopped: it has been replaced by another one",
    ]
    assert gone(before.values())


def test_those_that_nodes_run_on_are_not_ended_and_all_others_are(kernels):
    end = "from tfos_lab.driver.warm_servers import end_warm_servers; tell(end_warm_servers())"
    with kernels.start(_WAITS) as kernel:
        servers, _ = told(kernel)
        refused = kernels.outcome(end)
        kernel.kill()
    assert f"plain (process {servers['plain']}: 1 processes run that were forked from it)" in refused
    assert refused.startswith("not ended: plain")
    wait_until_ended(kernels, servers)
    assert kernels.outcome(end) == "no fork server that outlives its kernel runs"


def test_a_kernel_of_its_own_leaves_no_fork_server(kernels):
    before = kernels.fork_servers()  # of other tests, which may have left some for all kernels
    pids = kernels.outcome(
        "import psutil\ncluster = run(lambda args, ctx: __import__('os').getppid())\n"
        "tell(list(dict(cluster.wait()).values()))",
        TFOS_LAB_FORK_SERVER="kernel",
    )
    assert gone(pids)
    assert gone([server.pid for server in kernels.fork_servers() if server not in before])  # the plain one


def wait_until_ended(kernels, servers):
    """End the fork servers as soon as nothing runs on them."""
    # Those that have ended count, too, until they are reaped.
    eventually(lambda: not [child for pid in servers.values() for child in psutil.Process(pid).children()])
    done = kernels.outcome("from tfos_lab.driver.warm_servers import end_warm_servers; tell(end_warm_servers())")
    assert done == f"ended: plain (process {servers['plain']}), tensorflow (process {servers['tensorflow']})"
    assert gone(servers.values())


def test_variables_that_tensorflow_reads_at_import_mean_another_one_and_all_else_does_not(kernels):
    servers, parent = kernels.outcome(_RUNS)
    again, same = kernels.outcome(_RUNS, SECRET="1", TF_CONFIG="{}")
    assert (again, same) == (servers, parent)
    _, other = kernels.outcome(_RUNS, TF_ANYTHING="1")
    assert other != parent


def test_another_owner_than_user_or_kernel_is_refused_and_the_kernel_lives_on(kernels):
    code = (
        "try:\n    run(print)\nexcept tfos_lab.errors.ConfigError as error:\n    said = str(error)\n"
        "import gc; gc.collect(); tell(said)"
    )
    said = kernels.outcome(code, TFOS_LAB_FORK_SERVER="session")
    assert said.startswith("TFOS_LAB_FORK_SERVER=session: it is user (")
