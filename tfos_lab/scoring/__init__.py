"""Parallel scoring of DataFrames, with a model that fits on one node."""
