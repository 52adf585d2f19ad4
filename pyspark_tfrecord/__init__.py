"""Lets Spark find the format ``tfrecord`` by itself: it looks for packages whose names begin with ``pyspark_``."""

from tfos_lab.data.tfrecords.source import source_class

DefaultSource = source_class()
