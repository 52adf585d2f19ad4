"""The driver's end of the log stream: stores the nodes' logs, and filters them for display."""
