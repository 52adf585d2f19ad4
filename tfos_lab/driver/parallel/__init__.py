"""Independent runs of one function: which of them go on when, and what becomes of each. See `start.make_runs`."""
