"""Sandboxes TensorBoard's pages: they come from a node, which may be compromised, and must not act as the user.

Every response is marked as sandboxed, so that its scripts run in an origin of their own, without the user's cookies and
without access to Jupyter's pages, APIs and storage. Headers that are not about content, such as cookies, are removed.
Since a sandboxed page has no storage in the browser, a script that is inserted before TensorBoard's own provides one.
"""

from __future__ import annotations

from tornado.httputil import HTTPHeaders

from tfos_lab.engine.tensorboard.forward import Response

_POLICY = (
    "sandbox allow-scripts allow-downloads allow-modals; default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; "
    "frame-ancestors 'self'; form-action 'none'; object-src 'none'; base-uri 'none'"
)

# Headers that describe content; all others are dropped.
_CONTENT_HEADERS = (
    "Content-Type",
    "Content-Encoding",
    "Content-Disposition",
    "Cache-Control",
    "Expires",
    "ETag",
    "Last-Modified",
    "Vary",
)

SAFE_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Distinguishes our responses from those of a server without this extension.
    "X-Tfos-Lab": "1",
    # The origin of a sandboxed page. Access is controlled by the ticket or token in the address.
    "Access-Control-Allow-Origin": "null",
}

# TensorBoard draws in a worker if OffscreenCanvas exists, but a sandboxed page cannot start workers.
_SHIM = b"""<script>
(() => {
  const makeStorage = (entries) => {
    const kept = new Map(entries);
    return {
      getItem: (key) => kept.get(String(key)) ?? null,
      setItem: (key, value) => void kept.set(String(key), String(value)),
      removeItem: (key) => void kept.delete(String(key)),
      clear: () => kept.clear(),
      key: (index) => [...kept.keys()][index] ?? null,
      get length() { return kept.size; },
    };
  };
  // Frames are small: hide the settings pane at first; and reload charts automatically.
  const settings = { timeSeriesSettingsPaneOpened: false, autoReload: true, autoReloadPeriodInMs: 15000 };
  const local = makeStorage([["_tb_global_settings", JSON.stringify(settings)]]);
  Object.defineProperty(window, "localStorage", { value: local, configurable: true });
  Object.defineProperty(window, "sessionStorage", { value: makeStorage(), configurable: true });
  Object.defineProperty(document, "cookie", { get: () => "", set: () => {}, configurable: true });
  delete window.OffscreenCanvas;
})();
</script>"""


def protect(response: Response) -> Response:
    """Return a response of TensorBoard that is safe to pass on."""
    status, body = response.status, response.body
    kept = {name: response.headers[name] for name in _CONTENT_HEADERS if name in response.headers}
    is_uncompressed = response.headers.get("Content-Encoding", "identity") == "identity"
    if is_uncompressed and response.headers.get("Content-Type", "").startswith("text/html"):
        body = _adapt_page(body)
    if status in range(300, 400) and status != 304:
        status, body = 502, b"TensorBoard redirected elsewhere, which it has no reason to do."
        kept = {"Content-Type": "text/plain; charset=utf-8"}
    return Response(status, HTTPHeaders({**kept, **SAFE_HEADERS}), body)


def _adapt_page(page: bytes) -> bytes:
    """Return TensorBoard's page with the shim before its scripts, and with fonts that are found below any path."""
    return page.replace(b"<head>", b"<head>" + _SHIM, 1).replace(b"url(/font-roboto/", b"url(font-roboto/")
