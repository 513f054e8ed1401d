"""Values of JSON Schemas that are no rows, whatever their schema allows."""

import pyarrow as pa
import pytest

from headrace.pipelines.json_schema.values import JsonSchemaValues


@pytest.mark.parametrize("start", ["{", '{"type": ["object", "null"], '])
def test_only_objects_are_rows(start: str) -> None:
    values = JsonSchemaValues(start + '"properties": {"a": {"type": "integer"}}}')
    found = values.decode(pa.array([b' \n{"a": 1}', b"null", b'[{"a": 1}, {"a": 2}]', b"5"]))
    first, *others = found.reasons.to_pylist()
    assert first is None
    assert all(each and ("is not a JSON object" in each or "is not of type" in each) for each in others)
    assert found.columns.to_pylist() == [{"text": ' \n{"a": 1}'}, None, None, None]
