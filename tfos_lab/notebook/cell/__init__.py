"""Turns the text of a ``%%tfos`` cell into ``map_fun(args, ctx)``, or into a script."""
