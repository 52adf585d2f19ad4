"""Rows that a node reads from files itself: Parquet's row groups and TFRecords, around Spark."""
