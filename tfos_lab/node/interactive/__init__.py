"""A node of an interactive cluster: it waits for cells, and runs them one after the other in one namespace."""
