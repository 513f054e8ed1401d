"""The session that all tests of pipelines share."""

from pyspark.sql import SparkSession


def test_spark_runs(spark: SparkSession) -> None:
    assert spark.range(10).selectExpr("sum(id)").collect() == [(45,)]
