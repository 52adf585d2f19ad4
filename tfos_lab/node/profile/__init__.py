"""Profiles a node's process: TensorFlow's own profiler, and samples of its Python stacks."""
