"""What `tfos_lab.compat.TFCluster` does on the driver, with the engine. This package is not sent to the nodes."""
