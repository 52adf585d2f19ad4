"""The history of runs: reads what ``run.json`` says of each, finds runs by name, compares them and removes old ones."""
