"""How processes talk: ZeroMQ between hosts, frames over unix sockets, and the loop that reads them."""
