"""What runs beside the data: agents, fork servers, children, and the tasks inside Spark that lead to them."""
