"""The console sink: prints rows as JSON."""

import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


class ConsoleSink:
    """A `foreachBatch` writer that prints the first rows of each batch, one per line."""

    def __init__(self, name: str, rows: int) -> None:
        self._name = name
        self._rows = rows

    def write(self, batch: DataFrame, batch_id: int) -> None:
        # The whole batch must be computed, whatever is printed: stateful operators before it commit their state.
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
