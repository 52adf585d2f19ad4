"""The feed of a node: what Spark tasks send, what the agent stores, and what the user's function reads."""
