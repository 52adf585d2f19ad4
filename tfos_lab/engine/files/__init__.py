"""The driver's end of file transfers: stores what nodes send of ``ctx.output_dir`` and of their event files."""
