"""Rows on their way into a node: what Spark's tasks send, what the agent keeps, and what the user's function reads."""
