"""Launchers start nodes: on Spark's executors, on this machine, or in this process."""
