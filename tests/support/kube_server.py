"""The API server of the stand-in for Kubernetes: HTTP as Spark's client speaks it, in front of a store of objects."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Manifest = dict[str, Any]

KINDS = {"pods": "Pod", "configmaps": "ConfigMap", "services": "Service"}
_PATH = re.compile(r"/api/v1/namespaces/([^/]+)/(\w+)(?:/([^/]+))?")


def make_server(store: Any) -> ThreadingHTTPServer:
    """Return a server of a `tests.support.kube.Kube` on a free port of loopback; it does not serve yet."""
    return ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"kube": store}))


class _Handler(BaseHTTPRequestHandler):
    """One connection of Spark's Kubernetes client."""

    protocol_version = "HTTP/1.1"
    kube: Any

    def do_GET(self) -> None:
        _, resource, name, query = self._target()
        if self.headers.get("Upgrade", "").lower() == "websocket":
            self._answer({})  # the client then watches over plain HTTP
        elif name:
            self._answer(self.kube.found(resource, name))
        elif query.get("watch") == "true":
            self._watch(_selector(query))
        else:
            items = [found for found in self.kube.objects(resource) if _is_asked_for(query, found)]
            kind = f"{KINDS.get(resource, 'Object')}List"
            self._answer({"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "0"}, "items": items})

    def do_POST(self) -> None:
        namespace, resource, _, _ = self._target()
        self._answer(self.kube.create(resource, namespace, self._body()), 201)

    def do_PATCH(self) -> None:
        _, resource, name, _ = self._target()
        self._answer(self.kube.patch(resource, name, self._body()))

    def do_DELETE(self) -> None:
        _, resource, name, query = self._target()
        self._body()
        chosen = [
            found["metadata"]["name"] for found in self.kube.objects(resource) if _selects(_selector(query), found)
        ]
        deleted = [self.kube.delete(resource, each) for each in ([name] if name else chosen)]
        self._answer({"kind": "Status", "status": "Success"} if all(deleted) else None)

    def _target(self) -> tuple[str, str, str, dict[str, str]]:
        url = urlsplit(self.path)
        match = _PATH.fullmatch(url.path)
        namespace, resource, name = match.groups() if match else ("", url.path, "")
        return namespace, resource, name or "", {key: values[0] for key, values in parse_qs(url.query).items()}

    def _body(self) -> Manifest:
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")

    def _answer(self, content: Manifest | None, status: int = 200) -> None:
        if content is None:
            status = 404
            content = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _watch(self, selector: Mapping[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for change in self.kube.changes():
                if not _selects(selector, change["object"]):
                    continue
                line = json.dumps(change).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.flush()
        except OSError:
            self.close_connection = True  # the client has gone

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _selector(query: Mapping[str, str]) -> dict[str, str]:
    pairs = (
        part.partition("=") for part in query.get("labelSelector", "").split(",") if "=" in part and "!=" not in part
    )
    return {name: value.lstrip("=") for name, _, value in pairs}


def _is_asked_for(query: Mapping[str, str], found: Manifest) -> bool:
    field, _, value = query.get("fieldSelector", "").partition("=")
    involved = found.get("involvedObject", {}).get("name")
    return _selects(_selector(query), found) and (field != "involvedObject.name" or involved == value)


def _selects(selector: Mapping[str, str], found: Manifest) -> bool:
    return selector.items() <= found["metadata"].get("labels", {}).items()
