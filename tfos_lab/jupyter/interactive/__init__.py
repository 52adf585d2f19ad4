"""Interactive clusters in a notebook: ``%tfos start`` leaves nodes waiting, ``%%tfos on=NAME`` runs a cell on them."""
