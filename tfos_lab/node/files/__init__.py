"""Files of a node: sending them to the driver, and whether nodes share a folder."""
