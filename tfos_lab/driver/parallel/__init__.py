"""Independent runs of one function: which of them go on when, and what becomes of each. See `runs.make_runs`."""
