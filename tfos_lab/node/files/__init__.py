"""The node's end of file transfers."""
