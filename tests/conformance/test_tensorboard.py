"""TensorBoard of a run whose chief is on an executor; of others see test_remote_storage.py."""

import time

import pytest

from tests.support.unix_http import PATIENCE_S, fetch, fetch_until, write_events

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.back_ends("standalone")]


def test_event_files_are_shown_while_the_nodes_live_and_afterwards(run, tmp_path):
    looked = tmp_path / "looked"

    def train(args, ctx):
        if ctx.is_chief:
            args(ctx.log_dir, loss=[1.0, 0.5])
        while not looked.exists():
            time.sleep(0.05)

    cluster = run(train, write_events, tensorboard=True, log_dir=str(tmp_path / "events"))
    try:
        unix_server = cluster.publisher.tensorboard_socket
        fetch_until(unix_server, "/data/plugin/scalars/tags", b"loss")
        assert len(fetch(unix_server, "/index.js")[1]) > 1_000_000
        looked.touch()
        cluster.wait(timeout=PATIENCE_S)
        fetch_until(unix_server, "/data/plugin/scalars/tags", b"loss")
    finally:
        cluster.stop(grace=0.0)
        cluster.publisher.close()
