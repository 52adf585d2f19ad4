"""TensorBoard beside the chief: the process, the tunnel to the driver, and the event files."""
