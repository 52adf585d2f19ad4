"""Functions for trials of a search; nodes import this module, which imports nothing."""


def fit(args, ctx):
    """Report a loss that is least for x = 2."""
    from pathlib import Path

    if args["x"] == 3:
        raise ValueError("no threes")
    for step in range(1, 4):
        ctx.report(step, loss=abs(args["x"] - 2) + 1 / step)
    Path(ctx.output_dir, "x.txt").write_text(str(args))
    return args["x"]


def endless(args, ctx):
    """Report the same loss at a third of the steps; return at once for x = 0, else when cut."""
    import time

    ctx.report(1, total_steps=3, loss=float(args["x"]))
    while args["x"] > 0:
        time.sleep(0.05)
        ctx.report(1, total_steps=3, loss=float(args["x"]))
