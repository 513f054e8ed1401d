"""Helpers for `foreachBatch` writers: the running query's id, and batches that are skipped."""

from pyspark.sql import DataFrame


def running_query_id(df: DataFrame) -> str:
    """The id of the streaming query whose batch is being written; it is stored in the checkpoint."""
    return df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""


def run_without_writing(df: DataFrame) -> None:
    """Run a batch whose rows are already written: Spark's state store must commit each batch before the next one."""
    df.write.format("noop").mode("overwrite").save()
