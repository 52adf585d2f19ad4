"""TensorBoard's pages come from a node, and a node may have been taken over: they must not act as the user.

Every answer is marked as sandboxed, so that its scripts run in an origin of their own: without the user's cookies, and
with no way to Jupyter's pages, interfaces and storage. Whatever else the node sends beside content, such as cookies, is
left out. In such an origin the browser has no storage to offer; a few lines before TensorBoard's own see to that.
"""

from __future__ import annotations

from tornado.httputil import HTTPHeaders

from tfos_lab.engine.tensorboard.forward import Answer

_POLICY = (
    "sandbox allow-scripts allow-downloads allow-modals; default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; "
    "frame-ancestors 'self'; form-action 'none'; object-src 'none'; base-uri 'none'"
)

# What describes content; all else that a node sends is dropped.
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
    # By this a page knows an answer of ours from one of a server without this extension.
    "X-Tfos-Lab": "1",
    # The origin of a sandboxed page; without a ticket in the address nobody is answered at all.
    "Access-Control-Allow-Origin": "null",
}

# TensorBoard draws in a worker where it can, and a sandboxed page can have none: then it draws by itself.
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
  // Frames are small: no pane of settings at first; and charts go on by themselves.
  const settings = { timeSeriesSettingsPaneOpened: false, autoReload: true, autoReloadPeriodInMs: 15000 };
  const local = makeStorage([["_tb_global_settings", JSON.stringify(settings)]]);
  Object.defineProperty(window, "localStorage", { value: local, configurable: true });
  Object.defineProperty(window, "sessionStorage", { value: makeStorage(), configurable: true });
  Object.defineProperty(document, "cookie", { get: () => "", set: () => {}, configurable: true });
  delete window.OffscreenCanvas;
})();
</script>"""


def protect(answer: Answer) -> Answer:
    """Return an answer of TensorBoard as it is safe to pass on."""
    status, body = answer.status, answer.body
    kept = {name: answer.headers[name] for name in _CONTENT_HEADERS if name in answer.headers}
    plain = answer.headers.get("Content-Encoding", "identity") == "identity"
    if plain and answer.headers.get("Content-Type", "").startswith("text/html"):
        body = adapt_page(body)
    if status in range(300, 400) and status != 304:
        status, body = 502, b"TensorBoard sent its reader elsewhere, which it has no reason to."
        kept = {"Content-Type": "text/plain; charset=utf-8"}
    return Answer(status, HTTPHeaders({**kept, **SAFE_HEADERS}), body)


def adapt_page(page: bytes) -> bytes:
    """Return TensorBoard's page with what its scripts need put before them, and fonts found below any path."""
    return page.replace(b"<head>", b"<head>" + _SHIM, 1).replace(b"url(/font-roboto/", b"url(font-roboto/")
