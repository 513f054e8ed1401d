"""Validates a pipeline: Spark plans its queries over empty streams with the same columns."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines import decode
from headrace.pipelines.run.inputs import read_static
from headrace.pipelines.run.plan import PlanSchemas, Query, plan
from headrace.pipelines.spec.file import SpecFile
from headrace.pipelines.spec.model import Source


@dataclass(frozen=True, slots=True)
class ValidatedPipeline:
    """The planned queries of a valid pipeline."""

    queries: list[Query]

    def notes(self, file: SpecFile) -> list[str]:
        """Notes on valid settings that may not be intended."""
        spec = file.spec
        has_watermark = any(source.watermark for source in spec.sources.values()) or any(
            step.watermark for step in spec.steps
        )
        return [
            f"{each.name}: a row is written again whenever it changes, since this query has no final rows"
            + ("; to write each window once, GROUP BY window(…) itself, not by its start" if has_watermark else "")
            for each in self.queries
            if each.mode == "update" and each.sink is not None and each.sink.mode is None
        ]


def validate(spark: SparkSession, file: SpecFile) -> ValidatedPipeline:
    """Plan everything and run nothing. Raises `SpecError` with the line that is wrong.

    Needs no broker, except for the registry of a source whose schema the file does not name.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-validate-") as folder:

        def read(name: str, source: Source, *, headers: bool) -> DataFrame:
            if not source.is_stream:
                return read_static(spark, file.spec, source)
            columns = f"{decode.RECORD_SCHEMA}, {decode.HEADERS_SCHEMA}" if headers else decode.RECORD_SCHEMA
            return spark.readStream.schema(columns).parquet(str(Path(folder)))

        return ValidatedPipeline(plan(spark, file, read, PlanSchemas.unregistered(file.spec)))
