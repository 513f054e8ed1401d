"""Checking a pipeline before it runs: its plans are made over empty streams with the right columns, by Spark itself."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines import decode
from headrace.pipelines.run.inputs import read_static
from headrace.pipelines.run.plan import Query, plan
from headrace.pipelines.spec.file import SpecFile
from headrace.pipelines.spec.model import Source


@dataclass(frozen=True, slots=True)
class ValidatedPipeline:
    """What a valid pipeline will do."""

    queries: list[Query]

    def notes(self, file: SpecFile) -> list[str]:
        """What is right and yet may not be what was meant."""
        spec = file.spec
        has_watermark = any(source.watermark for source in spec.sources.values()) or any(
            step.watermark for step in spec.steps
        )
        return [
            f"{each.name}: a row is written again whenever it changes, since no row of this query is known to be final"
            + ("; to write each window once, GROUP BY window(…) itself, not by its start" if has_watermark else "")
            for each in self.queries
            if each.mode == "update" and each.sink is not None and each.sink.mode is None
        ]


def validate(spark: SparkSession, file: SpecFile) -> ValidatedPipeline:
    """Plan everything and run nothing; needs no broker. Raises `SpecError` with the line that is wrong."""
    with tempfile.TemporaryDirectory(prefix="headrace-validate-") as folder:

        def read(name: str, source: Source, *, headers: bool) -> DataFrame:
            if not source.is_stream:
                return read_static(spark, file.spec, source)
            columns = f"{decode.RECORD_SCHEMA}, {decode.HEADERS_SCHEMA}" if headers else decode.RECORD_SCHEMA
            return spark.readStream.schema(columns).parquet(str(Path(folder)))

        return ValidatedPipeline(plan(spark, file, read))
