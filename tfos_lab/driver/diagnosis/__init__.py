"""Says how far training is and why it is as slow as it is, from what the nodes measure."""
