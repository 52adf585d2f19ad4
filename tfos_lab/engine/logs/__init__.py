"""The driver's end of the log stream."""
