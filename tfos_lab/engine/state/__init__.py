"""Pure state machines of a cluster and its feeds, and the events and instructions that they produce."""
