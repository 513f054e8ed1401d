"""Operating pipelines without Spark: their folders, progress, lag, topics and supervision."""
