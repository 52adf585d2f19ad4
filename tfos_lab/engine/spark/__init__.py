"""What the engine needs from Spark: the session's state and slots, its executors, and tasks that run our code."""
