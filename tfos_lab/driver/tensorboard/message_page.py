"""A page that holds one sentence, shown in place of TensorBoard's own."""

from __future__ import annotations

from tfos_lab.core.markup import h

NO_DATA_YET = (
    "TensorBoard waits for the first event files. Keras' TensorBoard callback writes them, which is one of "
    "ctx.callbacks(), and so does tf.summary below ctx.event_dir."
)

_RETRY_S = 2


def message_page(sentence: str, *, retry: bool = False) -> str:
    """Return the HTML of the page; with ``retry``, the browser asks again after a moment."""
    refresh = f'<meta http-equiv="refresh" content="{_RETRY_S}">' if retry else ""
    return (
        f'<!doctype html><html><head><meta charset="utf-8"><title>TensorBoard</title>{refresh}</head>'
        f"{h('body', sentence, style='font: 14px/1.5 system-ui, sans-serif; margin: 2em')}</html>"
    )
