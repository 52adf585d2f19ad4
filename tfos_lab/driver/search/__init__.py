"""Searches over parameters: trials on clusters of their own, compared by a metric that they report. See `runs`."""
