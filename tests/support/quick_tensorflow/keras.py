"""Stands in for Keras beside the quick TensorFlow."""

__version__ = "0"
