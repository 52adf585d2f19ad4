"""Rows that a node reads from files itself: Parquet, TFRecords, CSV and JSON, around Spark."""
