"""TensorBoard of a run, from the driver: the process, the tunnel to the chief's, and what browsers get."""
