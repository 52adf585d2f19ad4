"""Connections: TLS between driver and agents, frames over unix sockets between processes of one host."""
