"""A DataFrame of 200 columns of several types: it is fed, and answered, as one of few is."""

from __future__ import annotations

import pytest

from tests.support.clusters import running_clusters
from tests.support.quick import QUICK_ENV

pytestmark = pytest.mark.leaves_nothing

COLUMNS, ROWS = 200, 30
KINDS = ("id + {n} as c{n}", "id / 2 + {n} as c{n}", "concat('t', id) as c{n}", "array(id, id + {n}) as c{n}")
EXPRESSIONS = [KINDS[n % len(KINDS)].format(n=n) for n in range(COLUMNS)]


def check(answers, ctx):
    """Return how many rows this node has seen whose columns all belong to one id; answer with the ids."""
    feed, right = ctx.data_feed(train_mode=not answers), 0
    while not feed.should_stop():
        rows = feed.next_batch(7)
        wanted = [
            [(row[0] + n, row[0] / 2 + n, f"t{row[0]}", [row[0], row[0] + n])[n % 4] for n in range(len(row))]
            for row in rows
        ]
        found = [[list(value) if n % 4 == 3 else value for n, value in enumerate(row)] for row in rows]
        right += sum(len(row) == 200 and row == expected for row, expected in zip(found, wanted, strict=True))
        if answers and rows:
            feed.batch_results([row[0] for row in rows])
    return right


def test_200_columns_of_several_types_are_fed_and_answered(spark):
    rows = spark.range(0, ROWS, 1, 2).selectExpr(*EXPRESSIONS)
    with running_clusters({"spark": spark, "local": "processes", "env": QUICK_ENV}) as start:
        cluster = start(check)
        cluster.train(rows)
        assert sum(cluster.wait(timeout_s=100).values()) == ROWS
        answered = start(check, "answer").inference(rows, schema="prediction long")
        assert len(answered.columns) == COLUMNS + 1
        assert [row.prediction for row in answered.select("prediction").collect()] == list(range(ROWS))
