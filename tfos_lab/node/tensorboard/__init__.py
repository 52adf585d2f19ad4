"""TensorBoard beside the chief: the process, its tunnel to the driver, and the event files."""
