"""A node's log: stored whole on disk, and sent to the driver."""
