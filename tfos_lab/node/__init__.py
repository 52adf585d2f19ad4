"""What runs on the nodes: agents, fork servers, children, and the Spark tasks that start them."""
