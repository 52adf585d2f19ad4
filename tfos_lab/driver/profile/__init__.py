"""Profiles of nodes: asked for, brought home, and drawn."""
