"""Files of a node: what it lists for the driver, what it gets from there, and whether nodes share a folder."""
