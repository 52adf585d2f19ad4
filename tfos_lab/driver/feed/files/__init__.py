"""Feeds of files on the driver: finds files and their columns, and deals their rows; nodes read them themselves."""
