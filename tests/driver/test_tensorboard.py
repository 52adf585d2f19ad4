"""A cluster as other processes see it: TensorBoard at an address with a token, the cluster's record, and Stop."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import psutil
import pytest

import tfos_lab
from tests.support import leftovers
from tests.support.eventually import eventually
from tests.support.quick import QUICK_ENV
from tests.support.unix_http import PATIENCE_S, ask, fetch_until, write_events
from tfos_lab.core import cluster_records

pytestmark = pytest.mark.leaves_nothing


# ---- a program of its own --------------------------------------------------------------------------------------------


PROGRAM = """
import json, threading, time, urllib.error, urllib.request
import tfos_lab
from tests.support.unix_http import write_events
from tests.support.quick import QUICK_ENV

def train(args, ctx):
    if ctx.is_chief:
        write_events(ctx.log_dir, loss=[1.0, 0.5])
    threading.Event().wait(600)

def ask(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()

def ask_until(url, wanted):
    while True:
        status, body = ask(url)
        if wanted in body and status != 503:  # the page that asks for patience has TensorBoard's title, too
            return status
        time.sleep(0.1)

cluster = tfos_lab.run(train, cluster_size=2, tensorboard=True, env=QUICK_ENV, local="processes")
url = cluster.tensorboard_url
running = ask_until(url, "<title>TensorBoard</title>"), ask_until(url + "data/plugin/scalars/tags", "loss")
without_token = ask("/".join(url.split("/")[:3]) + "/data/plugin/scalars/tags")[0]
cluster.stop(grace=0.0)
ended = ask_until(url + "data/plugin/scalars/tags", "loss")
same = cluster.tensorboard_url == url
print(json.dumps([url, running, without_token, ended, same]))
"""


def test_a_plain_program_has_an_address_that_works_as_long_as_it_lives(tmp_path):
    environ = {name: value for name, value in os.environ.items() if name != "JPY_PARENT_PID"}
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    url, running, without_token, ended, same = json.loads(done.stdout.splitlines()[-1])
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[0-9a-f]{64}/", url)
    assert (running, without_token, ended, same) == ([200, 200], 404, 200, True)
    with pytest.raises(urllib.error.URLError):
        ask(url)


# ---- clusters in a kernel --------------------------------------------------------------------------------------------


def socket_of(cluster):
    """Return where a cluster's TensorBoard is, as the Jupyter server finds it."""
    return eventually(lambda: (record := cluster_records.find(cluster.id)) and record.tensorboard)


def page_at(url):
    """Return a page of TensorBoard's, once it is there."""

    def there():
        status, _, body = ask(url)
        return status == 200 and body

    return eventually(there)


@pytest.fixture
def run():
    clusters = []

    def run(map_fun, args=None, **options):
        options = {"local": "processes", "env": QUICK_ENV, **options}
        clusters.append(tfos_lab.run(map_fun, args, **options))
        return clusters[-1]

    yield run
    for cluster in clusters:
        cluster.stop(grace=0.0)
        cluster.publisher.close()


def stay(args, ctx):
    if ctx.is_chief:
        write_events(ctx.log_dir, loss=[1.0, 0.5])
    threading.Event().wait(args)


def tensorboards():
    """Return the TensorBoard processes of this test run; others may run beside it."""
    return {process for process in psutil.process_iter(["name"]) if _is_ours(process)}


def _is_ours(process):
    try:
        run = leftovers._RUN_VARIABLE
        return process.info["name"] == "tfos tensorboar" and process.environ().get(run) == os.environ[run]
    except psutil.Error:
        return False  # it has just ended


def test_a_folder_is_shown_when_something_is_in_it_and_a_tensorboard_that_died_is_replaced(run):
    before = tensorboards()
    cluster = run(lambda args: threading.Event().wait(args), 600, tensorboard=True)
    unix_server = socket_of(cluster)
    fetch_until(unix_server, "/", b"waits for the first event files", status=503)
    write_events(cluster.run_dir / "events", loss=[1.0])
    fetch_until(unix_server, "/data/plugin/scalars/tags", b"loss")
    [tensorboard] = tensorboards() - before
    os.kill(tensorboard.pid, signal.SIGKILL)
    fetch_until(unix_server, "/data/plugin/scalars/tags", b"loss")


def test_who_asks_for_the_end_of_a_cluster_is_heard_while_the_main_thread_waits(run):
    cluster = run(stay, 600, name="busy")
    record = cluster_records.find(cluster.id)
    eventually(lambda: (run_of(cluster)) and run_of(cluster).state == "running")
    cluster_records.ask_to_stop(record)
    with pytest.raises(tfos_lab.errors.ClusterEnded):
        cluster.wait(PATIENCE_S)
    eventually(lambda: cluster_records.find(cluster.id) is None)
    assert list(cluster_records.folder().iterdir()) == []


def run_of(cluster):
    """Return the run as another process reads it, or None before the first record."""
    return tfos_lab.runs()[cluster.run_dir] if (cluster.run_dir / "run.json").exists() else None


def test_the_record_follows_steps_and_metrics(run, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/train.ipynb")

    def report(args, ctx):
        for step in (1, 2):
            ctx.report(step=step, total_steps=9, loss=1 / step)
        threading.Event().wait(args)

    cluster = run(report, 600)
    eventually(lambda: run_of(cluster) and run_of(cluster).last_metrics == {"loss": 0.5})
    record = run_of(cluster).record
    assert record.view.progress == pytest.approx(2 / 9)
    [node] = record.view.nodes
    assert (node.step, node.total_steps, node.pid) == (2, 9, cluster.nodes[0].pid)
    assert record.process.notebook == "/home/train.ipynb"


def test_without_a_runtime_folder_the_cluster_runs_all_the_same(run, tmp_path, monkeypatch, caplog):
    caplog.set_level("DEBUG")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "file"))
    clusters = [run(stay, 600, name=name, tensorboard=True) for name in ("one", "two")]
    for cluster in clusters:
        assert not cluster.view().tensorboard, "nothing would answer at its address"
        assert cluster.tensorboard_url.startswith("http://127.0.0.1:"), "the Jupyter server would not find it"
        assert b"</html>" in page_at(cluster.tensorboard_url)
    for path in ("", "data/runs", "0" * 64 + "/", "~/../", "//", "%C3%BC/"):
        for method in ("GET", "HEAD", "OPTIONS", "DELETE") if path else ("POST",):
            root = re.match(r"http://127\.0\.0\.1:\d+/", clusters[0].tensorboard_url)[0]
            assert ask(root + path, method=method)[0] == 404, "without the token"
    # Its pages are sandboxed, and nothing tells the token.
    url = clusters[0].tensorboard_url
    status, headers, body = ask(url)
    assert (status, b"<head><script>" in body) == (200, True)
    [policy] = headers.get_all("Content-Security-Policy")
    assert policy.startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in policy
    assert (headers["Referrer-Policy"], headers.get_all("Set-Cookie")) == ("no-referrer", None)
    status, headers, _ = ask(f"{url}data", method="OPTIONS")
    assert (status, headers["Access-Control-Allow-Headers"]) == (204, "*")
    assert url.split("/")[3] not in caplog.text
    for cluster in clusters:
        cluster.stop()
        assert cluster.state == "stopped"


def test_a_kernel_links_to_the_server_where_that_has_our_extension(run, monkeypatch):
    monkeypatch.setenv("JPY_PARENT_PID", str(os.getpid()))
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/alice/")
    cluster = run(lambda: 1, tensorboard=True)
    assert not cluster.view().tensorboard, "the card has no link that would lead nowhere"
    cluster_records.announce_server()
    assert cluster.view().tensorboard
    assert cluster.tensorboard_url == f"/user/alice/tfos-lab/tb/{cluster.id}/"
