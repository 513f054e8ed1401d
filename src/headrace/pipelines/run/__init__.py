"""Running a pipeline on Spark: plans, queries, decoding, recovery. The only package whose every module may import
PySpark."""
