"""Turns a ``%%tfos`` cell into ``map_fun(args, ctx)``, or exports it as a script."""
