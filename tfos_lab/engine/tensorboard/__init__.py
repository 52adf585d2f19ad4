"""The driver's part of TensorBoard: the tunnel to the chief, the local process, and what browsers may load."""
