"""What every other package may use: configuration, roles, paths, processes, and the code archive for executors."""
