"""From the text of a ``%%tfos`` cell to ``map_fun(args, ctx)``, and to a script."""
