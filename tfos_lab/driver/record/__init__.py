"""The record of a run that stays after it: ``run.json``."""
