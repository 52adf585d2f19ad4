"""What `tfos_lab.compat.TFCluster` does on the driver, with `tfos_lab.driver`. This package is not sent to the nodes."""
