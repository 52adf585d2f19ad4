"""The driver's part of feeds: Spark jobs that bring rows to the nodes, streams, and inference."""
