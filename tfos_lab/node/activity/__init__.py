"""What a node does and takes: its steps and waits, seen in the child; processes, host and GPUs, seen by the agent."""
