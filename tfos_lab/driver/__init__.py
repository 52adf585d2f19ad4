"""The driver's side: clusters, their heads and states, its part of feeds and files, records, search and doctor."""
