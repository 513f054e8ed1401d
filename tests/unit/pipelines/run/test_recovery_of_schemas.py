"""A batch can have a record that fails in a step and one of a new schema; Spark reports whichever is first."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.pipelines.control.folder import StateFolder
from headrace.pipelines.control.source_schemas import SourceSchemas
from headrace.pipelines.run import failing_rows, failure_recovery
from headrace.pipelines.run.failing_rows import _Chunk
from headrace.pipelines.run.failure_recovery import FailureRecovery
from headrace.pipelines.source.offsets import OffsetRange
from headrace.pipelines.spec.file import SpecFile
from headrace.pipelines.values.pinned import NewSchemaIds
from headrace.schemas.payload.frames import SchemaKey

NEW = PySparkException(f"in a worker: {NewSchemaIds('source', [9, 7])}\nat line 1")


class Learned(SourceSchemas):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.ids: list[tuple[str, list[SchemaKey]]] = []

    def learn(self, name: str, ids: Iterable[SchemaKey]) -> None:
        self.ids.append((name, [*ids]))


def test_records_of_new_schemas_are_not_taken_for_failing_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "one.toml"
    path.write_text('[source]\ntopic = "orders"\nformat = "avro"\n[sink]\ntopic = "out"\n')
    schemas, file, spark = Learned(), SpecFile(path, {}), cast(SparkSession, None)
    recovery = FailureRecovery(spark, file, StateFolder(tmp_path / "state"), schemas, lambda: False)

    def new_ids(*_: Any, **__: Any) -> Any:
        raise NEW

    chunk = _Chunk.__new__(_Chunk)
    vars(chunk).update(_spark=spark, _file=file, _query="sink", _source="source", _static={}, _others={})
    vars(chunk).update(_rows=SimpleNamespace(where=lambda _: None), _is_stopping=lambda: False)
    monkeypatch.setattr(_Chunk, "_within", lambda *_: None)
    monkeypatch.setattr(failing_rows, "steps_over", new_ids)
    with pytest.raises(PySparkException, match="new schema ids"):
        list(chunk.search([OffsetRange("orders", 0, 3, 4)]))

    monkeypatch.setattr(failure_recovery, "find_failing", new_ids)
    failed = SimpleNamespace(startOffset=lambda: "[-]", endOffset=lambda: '[{"orders": {"0": 4}}]')
    running: Any = SimpleNamespace(_jsq=SimpleNamespace(exception=lambda: SimpleNamespace(get=lambda: failed)), id="q")
    query: Any = SimpleNamespace(name="sink", sink=file.spec.sinks["sink"])
    assert recovery.recover(query, running, PySparkException("a cast failed")) == 0
    assert schemas.ids == [("source", [7, 9])]
    assert not recovery.rejected("sink").records
