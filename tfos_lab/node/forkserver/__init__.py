"""The fork server: a warm process from which agents and children are forked."""
