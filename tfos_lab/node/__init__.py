"""What runs beside the data: agents, nurseries, children, and the tasks inside Spark that lead to them."""
