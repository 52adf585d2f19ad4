"""What makes Keras train on several nodes as it does in one process."""
