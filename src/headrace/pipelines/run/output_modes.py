"""Chooses the output mode of a query: append if possible, update if rows change after they were written."""

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.spec.model import OutputMode

_MODES: tuple[OutputMode, ...] = ("append", "update", "complete")


def choose_mode(spark: SparkSession, rows: DataFrame, asked: OutputMode | None) -> OutputMode:
    """The requested mode, else the first that Spark supports for the query: append, update, complete.

    An aggregation without a watermark has no final rows, so it cannot append. Raises Spark's error if the query
    supports no mode, or not the requested one.
    """
    first: AnalysisException | None = None
    for mode in _MODES if asked is None else (asked,):
        try:
            _check(spark, rows, mode)
        except AnalysisException as error:
            # The first mode has the best message for errors that are not about the mode.
            first = first or error
        else:
            return mode
    assert first is not None
    raise first


def uses_transform_with_state(rows: DataFrame) -> bool:
    """Whether the query needs the RocksDB state store."""
    return "TransformWithState" in rows._jdf.queryExecution().analyzed().toString()


def _check(spark: SparkSession, rows: DataFrame, mode: OutputMode) -> None:
    """Raise the error that `DataStreamWriter.start` would raise."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), getattr(modes, mode.capitalize())())
