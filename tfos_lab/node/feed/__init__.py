"""The node's part of feeds: what Spark's tasks send, what the agent stores, and what the user's function reads."""
