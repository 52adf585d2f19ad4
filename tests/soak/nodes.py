"""What the nodes of a soak run: plain functions, which need no TensorFlow. Executors import this file, and no test."""

import sys
import time


def work(args, ctx):
    """Report some steps; the node that is to raise does so in the middle."""
    for step in range(args["steps"]):
        if step == args["steps"] // 2 and ctx.node == args["raises"]:
            raise ValueError("the soak asked for it")
        ctx.report(step=step, loss=1.0 / (step + 1))
        time.sleep(0.02)
    sys.stdout.write(f"{ctx.node} has worked\n")
    return ctx.node


def read(args, ctx):
    """Sum the column ``x`` of all rows; the node that is to raise does so after its first batch."""
    feed, total, rows = ctx.data_feed(), 0, 0
    while not feed.should_stop():
        batch = feed.next_batch(64)
        total, rows = total + sum(row["x"] for row in batch), rows + len(batch)
        ctx.report(rows=rows)
        if ctx.node == args["raises"]:
            raise ValueError("the soak asked for it")
    return total


def answer(args, ctx):
    """Answer each row with its double."""
    feed = ctx.data_feed(train_mode=False)
    while not feed.should_stop():
        batch = feed.next_batch(16)
        if batch and ctx.node == args["raises"]:
            raise ValueError("the soak asked for it")
        feed.batch_results([2 * row for row in batch])
        ctx.report(answered=len(batch))
