"""Measurements of tfos_lab beside the same work done by hand, as ratios taken side by side in one run."""
