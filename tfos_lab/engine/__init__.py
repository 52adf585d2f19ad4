"""The driver's part: a cluster's life, its listener and launchers, and the feed's books."""
