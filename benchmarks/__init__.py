"""Benchmarks: tfos_lab compared with the same work done by hand or by its peers, side by side in one run."""
