"""Where a node's threads are: told by the child itself, or by a signal where its interpreter does not answer."""
