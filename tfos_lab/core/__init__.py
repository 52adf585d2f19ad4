"""What both sides share: options, roles, states, paths, processes; messages and connections; functions as bytes."""
