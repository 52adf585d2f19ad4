"""Event files on the node's side, and the TensorBoard process that a fork server makes."""
