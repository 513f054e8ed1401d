"""Registers the Spark data source `headrace`: Spark imports every `pyspark_*` module and takes its `DefaultSource`."""

from headrace.pipelines.source.datasource import HeadraceDataSource as DefaultSource

__all__ = ["DefaultSource"]
