"""What runs on the hosts of a cluster: agents, fork servers, children, and the Spark tasks that start them."""
