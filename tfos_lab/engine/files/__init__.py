"""The driver's end of file transfers: receives what nodes write to ``ctx.output_dir``."""
