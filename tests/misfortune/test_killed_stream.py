"""A driver that is killed in the middle of a stream: the next one continues with the first uncommitted rows."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from tests.misfortune.conftest import Family, environment_of_a_kernel, gone

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.tensorflow]

PATIENCE_S = 90.0
FILES, ROWS = 6, 5
# A row in the middle of the fourth micro-batch, which holds one file.
FATAL_ROW = 3 * ROWS + 2

_KERNEL = """
import json, sys
from pathlib import Path
import tfos_lab
from tests.support.spark import spark_session

folder, name, fatal_row = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def keep(args, ctx):
    import threading
    path, fatal_row = args
    with open(f"{path}-{ctx.worker_num}", "a") as kept:
        for batch in ctx.dataset(4):
            rows = batch["x"].numpy()[batch["sample_weight"].numpy() > 0].tolist()
            kept.write("".join(f"{row}\\n" for row in rows))
            kept.flush()
            if fatal_row in rows:
                threading.Event().wait()

with spark_session("local[2]", folder / name) as spark:
    rows = spark.readStream.schema("x long").option("maxFilesPerTrigger", 1).json(str(folder / "files"))
    cluster = tfos_lab.run(keep, (str(folder / name), fatal_row), spark=spark, cluster_size=2, local="processes")
    feed = cluster.train(rows, checkpoint=str(folder / "checkpoint"))
    print(json.dumps([cluster.id, [node.pid for node in cluster.nodes]]), flush=True)
    sys.stdin.readline()
    feed.stop()
    cluster.wait(timeout_s=60)
"""


@contextmanager
def kernel(folder, name, fatal_row):
    """Run a kernel that feeds the stream to two nodes; yield its process and theirs."""
    (folder / name).mkdir()
    command = [sys.executable, "-c", _KERNEL, str(folder), name, str(fatal_row)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment_of_a_kernel(folder)
    ) as process:
        try:
            yield process, Family(*json.loads(process.stdout.readline()))
        finally:
            process.kill()


def rows_kept(folder, name):
    """Return what the nodes of a kernel have read so far."""
    return sorted(int(row) for path in folder.glob(f"{name}-[01]") for row in path.read_text().split())


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        select.select([], [], [], 0.05)


def test_no_row_that_counts_is_read_again_and_none_is_lost(tmp_path, spark_sessions):
    spark_sessions.close()
    (tmp_path / "files").mkdir()
    for number in range(FILES):
        path = tmp_path / "files" / f"{number}.json"
        path.write_text("".join(f'{{"x": {ROWS * number + row}}}\n' for row in range(ROWS)))
        os.utime(path, (1_700_000_000 + number,) * 2)  # the order that Spark takes files in

    with kernel(tmp_path, "first", FATAL_ROW) as (process, nodes):
        wait_until(lambda: FATAL_ROW in rows_kept(tmp_path, "first"))
        # Long enough for Spark to commit a micro-batch that the function has not finished.
        select.select([], [], [], 1.0)
        process.kill()
    assert gone([*nodes.nodes, nodes.fork_server, nodes.plain_fork_server])
    # Spark's commit log shows what counts: the first three micro-batches, whose rows were all read, once.
    counted = ROWS * len([path for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name.isdigit()])
    assert counted == 3 * ROWS
    assert [row for row in rows_kept(tmp_path, "first") if row < counted] == list(range(counted))

    with kernel(tmp_path, "second", -1) as (process, _):
        wait_until(lambda: len(rows_kept(tmp_path, "second")) >= FILES * ROWS - counted)
        process.stdin.write(b"enough\n")
        process.stdin.flush()
        assert process.wait(60) == 0
    assert rows_kept(tmp_path, "second") == list(range(counted, FILES * ROWS))
