"""What `tfos_lab.compat.TFCluster` does on the driver, with `tfos_lab.driver`. Nodes do without it."""
