"""Parses JSON as the specification has it: Python's parser also takes NaN and Infinity. Pure."""

import json
from typing import Any

from headrace.schemas.errors import SchemaTooComplex


def loaded_json(text: str) -> Any:
    """The value. Raises `ValueError`, or `SchemaTooComplex` for one that is nested too deep."""
    try:
        return json.loads(text, parse_constant=_refused)
    except RecursionError:
        raise SchemaTooComplex("the schema is nested too deep") from None


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")
