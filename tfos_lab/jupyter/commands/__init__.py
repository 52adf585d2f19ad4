"""The commands of ``%tfos``: each module has those of one topic; `table` lists all of them."""
