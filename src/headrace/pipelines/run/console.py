"""Rows on the terminal, as JSON: for looking at what a pipeline makes."""

import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


class ConsoleSink:
    """A `foreachBatch` writer: the first rows of each batch, one line each."""

    def __init__(self, name: str, rows: int) -> None:
        self._name = name
        self._rows = rows

    def write(self, batch: DataFrame, batch_id: int) -> None:
        # All of the batch has to be computed, whatever is shown of it: steps before this one may keep state.
        rows = batch.select(F.to_json(F.struct("*"))).persist()
        try:
            rows.count()
            lines = [row[0] for row in rows.take(self._rows + 1)]
        finally:
            rows.unpersist()
        if lines:
            sys.stdout.write("".join(f"{line}\n" for line in lines[: self._rows]))
            if len(lines) > self._rows:
                sys.stdout.write(f"… more rows in batch {batch_id} of {self._name}\n")
            sys.stdout.flush()
