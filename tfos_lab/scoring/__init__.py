"""Parallel scoring of a DataFrame with a model that fits on one node."""
