"""Operating pipelines without Spark: state folders, progress, lag, topics and supervision."""
