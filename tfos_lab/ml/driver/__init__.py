"""The part of `tfos_lab.ml` that only the driver needs. This package is not sent to the nodes."""
