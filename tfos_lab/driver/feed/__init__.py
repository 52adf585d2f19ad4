"""Feeds on the driver: jobs that send DataFrames and streams to the nodes, and inferences."""
