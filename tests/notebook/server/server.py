"""A Jupyter server as a hub starts it, and requests to it."""

from __future__ import annotations

import secrets
import urllib.error
import urllib.request

BASE = "/user/alice/"
TOKEN = secrets.token_hex(8)


def ask(url, *, login=True, method="GET", headers=None):
    """Return status, headers and body; redirections are not followed."""
    headers = {**({"Authorization": f"token {TOKEN}"} if login else {}), **(headers or {})}
    request = urllib.request.Request(url, method=method, headers=headers, data=b"" if method == "POST" else None)
    try:
        with urllib.request.build_opener(_Still).open(request, timeout=120) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


class _Still(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None
