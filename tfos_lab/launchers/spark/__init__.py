"""What nodes on Spark need of it: the session's state and slots, its executors, and tasks that run our code."""
