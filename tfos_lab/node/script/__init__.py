"""The node's part of `tfos_lab.run_script`: a Python file with its parameters, run as the main program."""
