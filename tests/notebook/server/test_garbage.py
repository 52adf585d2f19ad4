"""Garbage at our routes of a real Jupyter server, by somebody who is logged in: it is refused, in a sentence."""

from __future__ import annotations

import http.client
import json
import os
import random
from urllib.parse import quote, urlsplit

import pytest

from tests.notebook.server.server import BASE, TOKEN

MANY = os.environ.get("TFOS_LAB_FUZZ") == "soak"
REQUESTS = 5000 if MANY else 150
PREFIX = f"{BASE}tfos-lab/"
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
        path = PREFIX + shape.format(rng.choice(IDS))
        status, text = asked(url, method, path, rng.choice(BODIES), rng.choice(TYPES))
        if status >= 500 or "Traceback" in text or "root:" in text:
            bad.append((method, path[:120], status, text[-300:]))
    assert not bad
