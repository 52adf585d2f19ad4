"""A Jupyter server as a hub starts it, and requests to it."""

from __future__ import annotations

import secrets

from tests.support import unix_http

BASE = "/user/alice/"
TOKEN = secrets.token_hex(8)


def ask(url, *, login=True, method="GET", headers=None):
    """Return status, headers and body; redirections are not followed."""
    token = {"Authorization": f"token {TOKEN}"} if login else {}
    return unix_http.ask(url, method=method, headers={**token, **(headers or {})})
