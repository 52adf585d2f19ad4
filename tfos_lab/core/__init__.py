"""Used by all other packages: configuration, roles, states, launchers, paths, processes, the code archive."""
