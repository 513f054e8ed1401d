"""The file of a pipeline: its sections, read and checked. Spark-free."""
