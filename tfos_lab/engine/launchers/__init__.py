"""The ways in which nodes come to life: on Spark's executors, on this machine, or in this very process."""
