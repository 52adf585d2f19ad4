"""The driver's end of file transfers: what nodes write to ``ctx.output_dir``, and the models among it."""
