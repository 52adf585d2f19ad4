"""The driver's end of the logs: writes whole files, and hides misleading lines from the view."""
