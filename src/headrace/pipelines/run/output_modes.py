"""Which output mode a query has: append where it can, update where rows change after they were written."""

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.spec.model import OutputMode

_MODES: tuple[OutputMode, ...] = ("append", "update", "complete")


def choose_mode(spark: SparkSession, rows: DataFrame, asked: OutputMode | None) -> OutputMode:
    """The mode that was asked for, else the first that Spark can run: append, update, complete.

    An aggregation without a watermark never knows that a row is final, so it cannot append. Raises Spark's error if
    the query can run in no mode, or not in the one that was asked for.
    """
    first: AnalysisException | None = None
    for mode in _MODES if asked is None else (asked,):
        try:
            _check(spark, rows, mode)
        except AnalysisException as error:
            # What is wrong beyond the mode is best told by the mode that is tried first.
            first = first or error
        else:
            return mode
    assert first is not None
    raise first


def uses_transform_with_state(rows: DataFrame) -> bool:
    """Whether the query needs the RocksDB state store."""
    return "TransformWithState" in rows._jdf.queryExecution().analyzed().toString()


def _check(spark: SparkSession, rows: DataFrame, mode: OutputMode) -> None:
    """What `DataStreamWriter.start` would refuse, asked beforehand."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), getattr(modes, mode.capitalize())())
