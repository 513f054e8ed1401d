"""Tables of Parquet files, plain or Iceberg: commits, compaction, and the Spark sink."""
