"""The options of a ``%%tfos`` cell: parsing, evaluation, checks and completion."""
