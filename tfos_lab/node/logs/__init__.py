"""A node's log: kept whole on disk, and sent to the driver."""
