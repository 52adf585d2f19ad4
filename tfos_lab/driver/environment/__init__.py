"""The notebook's Python environment as an archive for executors that have Python and nothing else."""
