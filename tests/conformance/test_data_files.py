"""Rows as files on each node's own disk: every row on one node, and nothing left at the end of the run."""

from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.quick import QUICK_ENV

pytestmark = [pytest.mark.leaves_nothing]

KINDS = ["int64", "decimal128(5, 1)", "list<element: list<element: int64>>", "date32[day]"]


def read_files(args, ctx):
    """Return what the files of three feeds have, and where they are."""
    import json
    from pathlib import Path

    from pyarrow import ipc, parquet

    wide = [parquet.read_table(path) for path in ctx.rows_as_files()]
    texts = [Path(path).read_text() for path in ctx.rows_as_files("json")]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    paths = ctx.rows_as_files(format="arrow")
    last = [number for path in paths for number in ipc.open_file(path).read_all()["x"].to_pylist()]
    kinds = [str(kind) for kind in wide[0].schema.types]
    return kinds, [row for table in wide for row in table.to_pylist()], lines, last, paths


@pytest.mark.back_ends("inline-session", "local-session")
def test_files_have_every_row_once_and_are_removed_at_the_end(run, frame, back_end):
    cluster = run(read_files, cluster_size=min(2, back_end.ranks), env={} if back_end.is_inline else QUICK_ENV)
    columns = ("x", "cast(x as decimal(5, 1)) d", "array(array(x), array(x)) a", "date_add(date'2026-01-01', int(x)) t")
    cluster.train(frame(5, 0, 2, 4).selectExpr(*columns), epochs=2)
    cluster.train(frame(3))
    cluster.train(frame(6, 1))
    results = cluster.wait(timeout=100)
    kinds, typed, lines, last, paths = (list(parts) for parts in zip(*results.values(), strict=True))
    assert kinds == [KINDS] * len(kinds)
    rows = sorted((row for share in typed for row in share), key=lambda row: row["x"])
    assert [row["x"] for row in rows] == list(range(11))
    assert all(row["a"] == [[row["x"]], [row["x"]]] and row["d"] == row["x"] for row in rows)
    assert [row["t"].day for row in rows] == list(range(1, 12))
    assert sorted(row["x"] for share in lines for row in share) == list(range(3))
    assert sorted(number for share in last for number in share) == list(range(7))
    for shares in (typed, lines, last):
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
    eventually(lambda: not [path for share in paths for path in share if Path(path).exists()])
    assert not cluster.view().notes
