"""The user's function and its arguments, pickled for the nodes; and why something cannot be pickled."""
