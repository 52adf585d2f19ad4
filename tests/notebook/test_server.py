"""Our routes in a real Jupyter server: who has access, what is forwarded, what is removed, and what garbage gets."""

import contextlib
import http.client
import json
import math
import os
import random
import re
import secrets
import sys
import tempfile
import urllib.error
import urllib.request
from urllib.parse import quote, urlsplit

import pytest

from tests.support import unix_http
from tests.support.daemon import Daemon
from tests.support.hostile_tensorboard import PAGE, Node, hostile_tensorboard
from tests.support.outline import words
from tests.support.recorded_runs import this_process, write_live
from tfos_lab.core import cluster_records
from tfos_lab.driver.state.events import ClusterView, NodeView

BASE = "/user/alice/"
TOKEN = secrets.token_hex(8)


def ask(url, *, login=True, method="GET", headers=None):
    """Return status, headers and body; redirections are not followed."""
    token = {"Authorization": f"token {TOKEN}"} if login else {}
    return unix_http.ask(url, method=method, headers={**token, **(headers or {})})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module", autouse=True)
def runtime(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
        yield


@pytest.fixture(scope="module")
def url(folder):
    """A server as behind a hub, where only those routes are open that allow it."""
    with serving(folder, "--ServerApp.allow_unauthenticated_access=False") as url:
        yield url


@pytest.fixture(scope="module", params=["behind a hub", "by itself"])
def either_url(request, folder):
    """That server; and one as Jupyter is by default, where routes are open that ask for no login."""
    if request.param == "behind a hub":
        yield request.getfixturevalue("url")
        return
    with serving(folder) as url:
        yield url


@contextlib.contextmanager
def serving(folder, *options):
    paths = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "RUNTIME", "DATA")}
    command = [
        *(sys.executable, "-m", "jupyter_server", "--no-browser", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0"),
        *("--ServerApp.allow_root=True", f"--IdentityProvider.token={TOKEN}", f"--ServerApp.base_url={BASE}"),
        "--ServerApp.jpserver_extensions={'tfos_lab.notebook.server': True}",
        *(f"--ServerApp.root_dir={folder}", *options),
    ]
    environ = {**os.environ, **paths, "PYTHONPATH": os.pathsep.join(sys.path)}
    with Daemon("jupyter server", command, log=folder / f"log{len(options)}", env=environ) as server:
        yield server.wait_for_url(rf"(http://127\.0\.0\.1:\d+{BASE})", timeout_s=120)


@pytest.fixture
def node(short_path):
    with hostile_tensorboard(short_path("node")) as path:
        yield path


@pytest.fixture
def short_path(tmp_path_factory):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield lambda name: f"{folder}/{name}"


@pytest.fixture
def publish(tmp_path):
    """A function that publishes a cluster: ``tensorboard`` is its socket, and the rest is of what its view shows."""
    published = []

    def publish(cluster_id="mnist-1", *, tensorboard="", run_dir=None, process=None, **view):
        run_dir = run_dir or tmp_path / cluster_id
        known = {"cluster_id": cluster_id, "name": "mnist", "state": "running", "launcher": "local", "started_s": 1.0}
        shown = ClusterView(**{"ended_s": None, "nodes": (), "timings": {}, **known, **view})
        write_live(run_dir, shown, process)
        cluster_records.publish(cluster_records.ClusterRecord.here(cluster_id, str(run_dir), tensorboard))
        published.append(cluster_id)

    yield publish
    for cluster_id in published:
        cluster_records.remove(cluster_id)


def ticket_url(url):
    status, headers, _ = ask(f"{url}tfos-lab/tb/mnist-1/?darkMode=true")
    assert status == 302
    return url.removesuffix(BASE) + headers["Location"].partition("?")[0]


PATHS = ["clusters", "clusters/mnist-1/stop", "tb/mnist-1/", "tb/mnist-1", "tb/mnist-1/~00ff/", "tb/mnist-1/~00/x.js"]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", PATHS)
def test_without_a_login_nothing_is_served(either_url, publish, node, path, method):
    publish(tensorboard=node)
    # Jupyter itself refuses what other sites' pages ask for; this is as from a page of its own.
    headers = {"Referer": either_url, "Origin": either_url.removesuffix(BASE)}
    status, headers, body = ask(f"{either_url}tfos-lab/{path}", login=False, method=method, headers=headers)
    assert status in (403, 405) or (status == 302 and "/login" in headers["Location"])
    assert b"mnist" not in body
    assert Node.heard == []


def test_the_live_clusters_of_all_kernels_are_listed_without_their_sockets(url, publish, node):
    chief = NodeView("chief:0", "chief", 0, is_chief=True, state="running", host="host", pid=7, step=3, total_steps=9,
                     metrics={"loss": math.nan})  # fmt: skip
    publish("a", tensorboard=node, nodes=(chief,), progress=0.3)
    publish("b", started_s=2.0, process=this_process(kernel_id="1234"))
    publish("c", state="done", ended_s=5.0, tensorboard=node)
    status, _, body = ask(f"{url}tfos-lab/clusters")
    assert status == 200
    listed = json.loads(body)
    first, second = listed["clusters"]
    assert (first["id"], first["name"], first["is"]) == ("a", "mnist", "running, 1/1 nodes running")
    assert (first["notebook"], first["kernel_state"]) == ("", "")
    assert (second["id"], second["name"], second["kernel_id"]) == ("b", "mnist", "1234")
    shown, _, _ = words(listed["html"]).partition("Ended runs (1)")
    for text in ("1/1 nodes running", "chief:0", "3 /9", "Host host", "PID 7", "TensorBoard of mnist"):
        assert text in shown
    assert shown.count("TensorBoard of mnist") == 1, "that of the other cannot be opened"
    assert node not in body.decode()


def ended_in(run_dir, url):
    listed = json.loads(ask(f"{url}tfos-lab/clusters")[2])
    [run] = [run for run in listed["runs"] if run["id"] == run_dir.name]
    return {**run, "tensorboard": "TensorBoard of" in listed["html"], "is_listed": str(run_dir) in listed["html"]}


def test_runs_that_have_ended_are_listed_also_after_their_clusters_have_gone(url, publish, folder, node):
    run_dir = folder / "elsewhere" / "mnist-1"
    publish(run_dir=run_dir)
    assert json.loads(ask(f"{url}tfos-lab/clusters")[2])["clusters"][0]["id"] == "mnist-1"
    publish(run_dir=run_dir, state="done", ended_s=9.0, tensorboard=node)
    run = ended_in(run_dir, url)
    assert (run["is_listed"], run["outcome"], run["ended_s"], run["tensorboard"]) == (True, "done", 9.0, True)
    assert run["note"] == "mnist is done after 8.00 s"
    cluster_records.remove("mnist-1")
    assert (ended_in(run_dir, url)["id"], ended_in(run_dir, url)["tensorboard"]) == ("mnist-1", False)


def test_asking_for_the_list_does_not_keep_the_server_alive(url):
    before = json.loads(ask(f"{url}api/status")[2])["last_activity"]
    ask(f"{url}tfos-lab/clusters")
    assert json.loads(ask(f"{url}api/status")[2])["last_activity"] == before


def test_the_ticket_leads_to_tensorboard_which_gets_no_user_headers(url, publish, node):
    publish(tensorboard=node)
    status, headers, _ = ask(f"{url}tfos-lab/tb/mnist-1/?darkMode=true")
    assert status == 302
    assert re.fullmatch(BASE + r"tfos-lab/tb/mnist-1/~[0-9a-f]{64}/\?darkMode=true", headers["Location"])
    secret = {
        "Cookie": "login=secret",
        "X-XSRFToken": "secret",
        "Referer": "http://secret/",
        "Authorization": "token x",
    }
    status, _, _ = ask(f"{ticket_url(url)}data/runs?a=1", login=False, headers=secret)
    assert status == 200
    [(path, headers)] = Node.heard
    assert path == "/data/runs?a=1"
    assert not {"cookie", "authorization", "x-xsrftoken", "referer"} & {name.lower() for name in headers}
    assert "secret" not in str(headers)


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
def test_what_a_node_sends_is_sandboxed_and_sets_no_cookies(url, publish, node, accept):
    publish(tensorboard=node)
    status, headers, body = ask(ticket_url(url), login=False, headers={"Accept": accept, "Origin": "null"})
    assert status == 200
    assert headers.get_all("Set-Cookie") is None
    assert headers["Clear-Site-Data"] is None
    assert headers["Location"] is None
    [policy] = headers.get_all("Content-Security-Policy")
    assert policy.startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in policy
    assert "default-src *" not in policy
    assert headers["Access-Control-Allow-Origin"] == "null"
    assert b"<head><script>" in body


def test_a_login_in_the_address_is_not_passed_on(url, publish, node):
    publish(tensorboard=node)
    status, headers, _ = ask(f"{url}tfos-lab/tb/mnist-1/?token={TOKEN}&darkMode=true", login=False)
    assert status == 302
    assert headers["Location"].endswith("/?darkMode=true")


def test_a_node_cannot_redirect_elsewhere(url, publish, node):
    publish(tensorboard=node)
    status, headers, _ = ask(ticket_url(url) + "away", login=False)
    assert (status, headers["Location"]) == (502, None)


def test_a_sandboxed_page_may_send_tensorboard_s_own_headers(url, publish, node):
    publish(tensorboard=node)
    asked = {
        "Origin": "null",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-xsrf-protected",
    }
    status, headers, _ = ask(ticket_url(url) + "data", login=False, method="OPTIONS", headers=asked)
    assert (status, headers["Access-Control-Allow-Origin"], headers["Access-Control-Allow-Headers"]) == (
        204,
        "null",
        "*",
    )
    assert ask(ticket_url(url) + "data", login=False, method="POST", headers={"Origin": "null"})[0] == 200
    assert ask(ticket_url(url) + "data", login=False, method="DELETE")[0] in (403, 405)


def test_a_ticket_is_valid_for_one_run_only(url, publish, node):
    publish(tensorboard=node)
    publish("other", tensorboard=node)
    elsewhere = ticket_url(url).replace("mnist-1", "other")
    status, _, body = ask(elsewhere, login=False)
    assert status == 403
    assert b"open TensorBoard from the notebook again" in body
    assert Node.heard == []


def test_a_missing_tensorboard_is_explained_in_a_sentence(url, publish, short_path):
    publish(tensorboard=short_path("nobody"))
    status, _, body = ask(ticket_url(url), login=False)
    assert status == 502
    assert b"TensorBoard does not answer" in body
    status, _, body = ask(f"{url}tfos-lab/tb/unknown/")
    assert status == 404
    assert b"its kernel has ended" in body


@pytest.mark.parametrize(
    ("listing", "status"),
    [
        (b'{"scalars": {"enabled": false, "tab_name": "Scalars"}, "graphs": {"enabled": false}}', 503),
        (b'{"scalars": {"enabled": false}, "graphs": {"enabled": true}}', 200),
        (b"{}", 200),
        (b'{"scalars": {"enabled": "no"}}', 200),
        (b'["scalars"]', 200),
        (b"\xff", 200),
    ],
)
def test_a_tensorboard_with_nothing_to_show_is_held_back(url, publish, node, listing, status):
    publish(tensorboard=node)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Node, "listing", listing)
        answered, headers, body = ask(ticket_url(url), login=False)
        assert ask(f"{ticket_url(url)}data/runs", login=False)[0] == 200
    assert answered == status
    assert headers["X-Tfos-Lab"] == "1"
    assert (b"waits for the first event files" in body) == (status == 503)
    assert (b'http-equiv="refresh"' in body) == (status == 503), "in a tab it asks again by itself"


def test_a_tensorboard_that_is_up_after_it_was_asked_what_it_can_show_is_held_back_until_it_says(url, publish, node):
    publish(tensorboard=node)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Node, "listing", b"<html><head></head><body>It is starting beside the chief.</body></html>")
        patch.setattr(Node, "listing_status", 503)
        status, headers, body = ask(ticket_url(url), login=False)
    assert (status, headers["X-Tfos-Lab"]) == (503, "1")
    assert b"It is starting beside the chief." in body
    assert "sandbox" in headers["Content-Security-Policy"]


def test_stop_leaves_a_mark_for_the_cluster_s_own_thread(url, publish):
    publish()
    status, _, body = ask(f"{url}tfos-lab/clusters/mnist-1/stop", method="POST")
    assert (status, json.loads(body)["state"]) == (202, "stopping")
    assert cluster_records.stop_mark("mnist-1").exists()
    cluster_records.remove("mnist-1")
    assert not cluster_records.stop_mark("mnist-1").exists()
    status, _, body = ask(f"{url}tfos-lab/clusters/mnist-1/stop", method="POST")
    assert (status, json.loads(body)["message"]) == (404, "no such cluster runs; it may just have ended")


def test_a_request_is_forwarded_unchanged_and_its_answer_comes_back(url, publish, node):
    publish(tensorboard=node)
    quoted = f"{ticket_url(url)}data/plugin/a%2Fb/~c?run=.%2F&tag=x%20y"
    status, headers, body = ask(quoted, login=False, headers={"If-None-Match": '"abc"', "User-Agent": "secret"})
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    [(path, headers)] = Node.heard
    assert path == "/data/plugin/a%2Fb/~c?run=.%2F&tag=x%20y"
    assert headers["If-None-Match"] == '"abc"'
    assert "secret" not in str(headers)
    assert body.endswith(PAGE.partition(b"<head>")[2])
    asked = urllib.request.Request(quoted, data=b"tags=1", headers={"Content-Type": "text/x-tags"})
    with urllib.request.urlopen(asked, timeout=120) as answer:
        assert answer.status == 200
    assert Node.bodies[-1] == b"tags=1"
    assert Node.heard[-1][1]["Content-Type"] == "text/x-tags"


# ---- garbage, by somebody who is logged in --------------------------------------------------------------------------

MANY = os.environ.get("TFOS_LAB_FUZZ") == "soak"
REQUESTS = 5000 if MANY else 150
METHODS = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW"]
IDS = [
    "x",
    "..",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "..%2f..%2fx",
    "%00",
    "%ff%fe",
    "%",
    "%zz",
    "~",
    "a" * 3000,
]
IDS += [quote("\U0001f600"), "a%0d%0aSet-Cookie:%20x=1", "%2Fetc%2Fpasswd", "*", "x;y", "x?y=z", "x#y", "-1", "null"]
SHAPES = ["clusters/{}/stop", "clusters/{}", "tb/{}/", "tb/{}", "tb/{}/~00ff/", "tb/{}/~00ff/../../../etc/passwd"]
SHAPES += ["clusters", "runs", "runs/{}", "tb/x/~{}/", "{}", "", "clusters?{}", "runs?{}=1"]
BODIES = [b"", b"{", b"null", b"[]", b'{"id": 1}', b"\xff\xfe", b"[" * 5000, json.dumps({"a": "b" * 100_000}).encode()]
TYPES = [
    "application/json",
    "text/plain",
    "multipart/form-data; boundary=x",
    "application/x-www-form-urlencoded",
    "\xff",
]


def asked(url, method, path, body, kind):
    """Return the status and the text of an answer."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    try:
        headers = {"Authorization": f"token {TOKEN}", "Content-Type": kind, "Content-Length": str(len(body))}
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value.encode("latin-1"))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()


@pytest.mark.parametrize("seed", [random.SystemRandom().randrange(1_000_000) if MANY else 1])
def test_whatever_is_asked_no_route_fails(url, seed):
    rng = random.Random(seed)
    bad = []
    for number in range(REQUESTS):
        method, shape = METHODS[number % len(METHODS)], rng.choice(SHAPES)
        path = f"{BASE}tfos-lab/" + shape.format(rng.choice(IDS))
        status, text = asked(url, method, path, rng.choice(BODIES), rng.choice(TYPES))
        if status >= 500 or "Traceback" in text or "root:" in text:
            bad.append((method, path[:120], status, text[-300:]))
    assert not bad
