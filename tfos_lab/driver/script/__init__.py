"""The driver's part of `tfos_lab.run_script`: what is checked and sent, the handle, and the kept versions."""
