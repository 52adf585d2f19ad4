"""Markers in a queue of rows: a reader takes them for what they mean, and never for rows."""

from __future__ import annotations


class Marker:
    """Base of all markers."""


class EndPartition(Marker):
    """A partition's rows end here."""
