"""How a cluster is found from outside its process: its record, and the socket that answers for it."""
