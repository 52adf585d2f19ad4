"""The options of a ``%%tfos`` cell: parsed, evaluated, checked and completed."""
