"""Rows to tables of Parquet files, plain or Iceberg."""
