"""The driver's end of file transfers: fetches what nodes have in ``ctx.output_dir``, event files and large results."""
