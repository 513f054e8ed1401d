"""Parts of JSON Schemas that the tables combine."""

import json
from typing import Any

from tests.unit.schemas.cases.table import CompatibilityCase

STRING: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}
INTEGER: dict[str, Any] = {"type": "integer"}
BOOLEAN: dict[str, Any] = {"type": "boolean"}


def json_case(reason: str, old: Any, new: Any, backward: str = "", forward: str = "") -> CompatibilityCase:
    return CompatibilityCase(reason, json.dumps(old), json.dumps(new), backward, forward)


def json_object(properties: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "object", **({} if properties is None else {"properties": properties}), **more}


def closed_object(properties: Any = None, **more: Any) -> dict[str, Any]:
    return json_object(properties, additionalProperties=False, **more)
