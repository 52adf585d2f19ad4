"""What the engine does with a SparkSession: looks at it and its executors, and runs tfos_lab's code there."""
