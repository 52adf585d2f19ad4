"""TensorBoard on a node's host, through the tunnel: no more is sent than there is credit for, and nothing blocks."""

from __future__ import annotations

import threading

from tests.support.eventually import eventually
from tfos_lab import messages as m

REQUEST = b"GET / HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"
WINDOW = 1000


def forever():
    threading.Event().wait()


def received(node, stream):
    return b"".join(message.data for message in node.all(m.TunnelData) if message.stream == stream)


def is_closed(node, stream):
    return m.TunnelClosed(rank=0, stream=stream) in node.received


def test_a_page_is_sent_as_credit_is_given_and_what_does_not_fit_closes_its_stream(run, tmp_path):
    (tmp_path / "logs").mkdir()
    node = run(forever, start={"tensorboard": True, "log_dir": str(tmp_path / "logs")})
    eventually(lambda: node.poll() or node.all(m.TensorBoardReady) or node.all(m.TensorBoardGone))
    assert not node.all(m.TensorBoardGone)

    node.send(m.TunnelOpen(stream=1, window=WINDOW))
    for offset in (0, 10):
        data = REQUEST[:10] if not offset else REQUEST[10:]
        node.send(m.TunnelData(rank=0, stream=1, offset=offset, data=data))
    eventually(lambda: node.poll() or len(received(node, 1)) == WINDOW)
    assert node.beats()
    assert len(received(node, 1)) == WINDOW, "without credit nothing more is sent"
    assert sum(message.size for message in node.all(m.TunnelCredit) if message.stream == 1) == len(REQUEST)
    known = WINDOW

    def take_more():
        nonlocal known
        node.poll()
        if len(received(node, 1)) > known:
            node.send(m.TunnelCredit(rank=0, stream=1, size=len(received(node, 1)) - known))
            known = len(received(node, 1))
        return is_closed(node, 1)

    node.send(m.TunnelCredit(rank=0, stream=1, size=WINDOW))
    eventually(take_more)
    page = received(node, 1)
    assert page.startswith(b"HTTP/1.1 200")
    assert b"<html" in page.lower()
    assert len(page) > 2 * WINDOW

    node.send(m.TunnelOpen(stream=2, window=WINDOW))
    node.send(m.TunnelData(rank=0, stream=2, offset=6, data=REQUEST))  # a gap
    eventually(lambda: node.poll() or is_closed(node, 2))

    for stream in range(3, 400):
        node.send(m.TunnelOpen(stream=stream, window=WINDOW))
    eventually(lambda: node.poll() or is_closed(node, 399))
    assert not is_closed(node, 3), "those that there is room for stay open"
    assert node.beats()


def test_without_a_tensorboard_a_stream_ends_at_once(run):
    node = run(forever)
    assert node.pid
    node.send(m.TunnelOpen(stream=1, window=WINDOW))
    assert node.wait_for(m.TunnelClosed) == m.TunnelClosed(rank=0, stream=1)
