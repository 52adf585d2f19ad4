"""How other processes find a cluster: its cluster record, and the socket beside it."""
