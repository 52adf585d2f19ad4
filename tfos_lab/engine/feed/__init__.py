"""The driver's part of rows: jobs that bring DataFrames and streams to the nodes, or fetch what these infer."""
