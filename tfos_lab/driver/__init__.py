"""The driver's side: clusters and their life, launchers, the server, and the driver's part of feeds."""
