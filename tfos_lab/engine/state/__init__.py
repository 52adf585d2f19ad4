"""The state machines of a cluster and of its feeds, and the values that they produce: no I/O, no clock."""
