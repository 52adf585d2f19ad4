"""Parallel scoring: a model that fits on one node, applied to the rows of a DataFrame."""
