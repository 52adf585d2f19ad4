"""Functions that nodes run in the tests of `tfos_lab.ml`, without TensorFlow; nodes import this module."""

import os
import shutil
import time
from pathlib import Path


def read_rows(ctx):
    feed, rows = ctx.data_feed(), []
    while not feed.should_stop():
        rows += feed.next_batch(10)
    return rows


def keep_model(args, ctx):
    """Save the model that ``args.model`` names, and tell what was there."""
    rows = read_rows(ctx)
    shutil.copy(args.model, Path(ctx.output_dir) / "model.keras")
    width = len(rows[0]) if rows else 0
    return {"rows": [len(rows)], "width": [width], "batch": [args.batchSize, args.batch_size, args["batchSize"]]}


def export_model(args, ctx):
    """Export the model that ``args.model`` names to the folder for it."""
    read_rows(ctx)
    if ctx.is_chief:
        shutil.copytree(args.model, args.exportDir)


def keep_nothing(args, ctx):
    """Save no model."""
    read_rows(ctx)


def fail(args, ctx):
    raise ValueError("no such weights")


def hang(args, ctx):
    """Tell that it runs, and run until it is stopped; with ``args.model``, save that instead."""
    if args.get("fails"):
        while not list(Path(args.folder).glob("runs-*")):
            time.sleep(0.05)
        raise ValueError("no such weights")
    (Path(args.folder) / f"runs-{ctx.job_name}-{time.time()}").touch()
    time.sleep(120)


def keep_two_models(args, ctx):
    """Leave an older model in the output folder, and save the one that ``args.model`` names."""
    read_rows(ctx)
    older = Path(ctx.output_dir) / "model"
    older.mkdir()
    os.utime(older, (1.0, 1.0))
    shutil.copy(args.model, Path(ctx.output_dir) / "model.keras")
