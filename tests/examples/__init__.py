"""A package, so that its fixtures end with its last test: what holds the cluster's cores is in the way of others."""
