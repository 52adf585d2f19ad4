"""The state machines of a cluster and its feeds, and the values that they produce: no I/O, no clock."""
