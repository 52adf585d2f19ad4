"""The HTTP server for TensorBoard: which requests it answers, what it passes on, and when it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import pytest

from tests.support.hostile_tensorboard import PAGE, Node, hostile_tensorboard
from tfos_lab.engine.tensorboard.http_server import TensorBoardHttpServer
from tfos_lab.transport.unix_server import UnixServer

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture
def short_path():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield lambda name: f"{folder}/{name}"


@pytest.fixture
def loop():
    async def serve(_reader, _writer):
        pass

    unix_server = UnixServer(serve)
    yield unix_server.loop
    unix_server.close()


@pytest.fixture
def url(loop, short_path):
    with hostile_tensorboard(short_path("tensorboard")) as path:
        server = TensorBoardHttpServer(loop, path)
        Node.heard.clear()
        yield server.url
        server.close()


class _Still(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def ask(url, *, method="GET", headers=None, body=None):
    """Return status, headers and body, following no redirection."""
    request = urllib.request.Request(url, method=method, headers=headers or {}, data=body)
    try:
        with urllib.request.build_opener(_Still).open(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "DELETE"])
@pytest.mark.parametrize("path", ["", "data/runs", "0" * 64, "0" * 64 + "/", "~/../", "%C3%BC/", "//"])
def test_requests_without_the_token_get_nothing(url, path, method):
    root = re.match(r"http://127\.0\.0\.1:\d+/", url)[0]
    status, _, body = ask(root + path, method=method, body=b"" if method == "POST" else None)
    assert status == 404
    assert b"TensorBoard</title></head></html>" not in body
    assert Node.heard == []


def test_requests_are_passed_on_without_headers_about_the_user(url):
    secret = {"Cookie": "login=secret", "Authorization": "token secret", "Referer": "http://secret/", "X-A": "secret"}
    asked = {**secret, "If-None-Match": '"abc"', "Content-Type": "text/x-tags"}
    status, _, body = ask(f"{url}data/a%2Fb?run=.%2F&tag=x%20y", headers=asked)
    assert status == 200
    assert body.endswith(PAGE.partition(b"<head>")[2])
    assert ask(f"{url}data", method="POST", headers=asked, body=b"tags=1")[0] == 200
    [(path, heard), (_, posted)] = Node.heard
    assert path == "/data/a%2Fb?run=.%2F&tag=x%20y"
    assert heard["If-None-Match"] == '"abc"'
    assert (posted["Content-Type"], Node.bodies[-1]) == ("text/x-tags", b"tags=1")
    assert "secret" not in str(heard) + str(posted)


def test_pages_are_sandboxed_as_in_the_jupyter_server(url):
    status, headers, body = ask(url)
    assert status == 200
    [policy] = headers.get_all("Content-Security-Policy")
    assert policy.startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in policy
    assert headers["Referrer-Policy"] == "no-referrer", "the address holds the token"
    assert headers.get_all("Set-Cookie") is None
    assert b"<head><script>" in body
    assert ask(f"{url}away")[0] == 502
    status, headers, _ = ask(f"{url}data", method="OPTIONS")
    assert (status, headers["Access-Control-Allow-Headers"]) == (204, "*")


def test_an_address_without_its_last_slash_redirects(url):
    status, headers, _ = ask(url.removesuffix("/"))
    assert (status, f"http://127.0.0.1:{url.split(':')[2].split('/')[0]}{headers['Location']}") == (302, url)


def test_requests_leave_no_log_lines_with_the_token(url, caplog):
    caplog.set_level("DEBUG")
    ask(url)
    ask(f"{url}away")
    ask(url, method="DELETE")
    assert url.split("/")[3] not in caplog.text


def test_without_a_tensorboard_the_page_says_so(loop, short_path):
    server = TensorBoardHttpServer(loop, short_path("nobody"))
    status, _, body = ask(server.url)
    assert (status, b"TensorBoard does not answer" in body) == (502, True)
    server.close()
    server.close()


def test_a_port_that_another_server_answers_at_is_refused(loop, short_path, monkeypatch):
    monkeypatch.setattr("tfos_lab.engine.tensorboard.sandbox.SAFE_HEADERS", {})
    with hostile_tensorboard(short_path("tensorboard")) as path, pytest.raises(OSError, match="another server answers"):
        TensorBoardHttpServer(loop, path)


PROGRAM = """
import json, threading, time, urllib.error, urllib.request
import tfos_lab
from tests.support.unix_http import write_events
from tests.support.quick import QUICK_ENV
from tfos_lab.engine.cluster import runtime_of

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
tunnelled = runtime_of(cluster).generation.tunnel.ready
without_token = ask("/".join(url.split("/")[:3]) + "/data/plugin/scalars/tags")[0]
cluster.stop(grace_s=0.0)
ended = ask_until(url + "data/plugin/scalars/tags", "loss")
same = cluster.tensorboard_url == url
print(json.dumps([url, running, tunnelled, without_token, ended, same]))
"""


def test_a_plain_program_has_an_address_that_works_as_long_as_it_lives(tmp_path):
    environ = {name: value for name, value in os.environ.items() if name != "JPY_PARENT_PID"}
    folders = {"JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"), "TFOS_LAB_RUNS": str(tmp_path / "runs")}
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**environ, **folders, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    url, running, tunnelled, without_token, ended, same = json.loads(done.stdout.splitlines()[-1])
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[0-9a-f]{64}/", url)
    assert (running, tunnelled, without_token, ended, same) == ([200, 200], True, 404, 200, True)
    with pytest.raises(urllib.error.URLError):
        ask(url)
