"""Interactive clusters: nodes that wait for cells."""
