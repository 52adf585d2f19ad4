"""The node's end of the logs: output of the child is kept on disk, and sent to the driver."""
