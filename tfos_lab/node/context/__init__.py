"""``ctx``, the second argument of the user's function: `NodeContext`, whose methods are grouped by subject."""
