"""TensorBoard of a run for whoever visits it, and what stands between its pages and the user's browser."""
