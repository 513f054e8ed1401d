"""Requests and answers of the Kafka protocol from nested dicts.

Fields that a version does not have are left out and those that are missing get a neutral value, so that one dict serves
all versions of an API.
"""

import dataclasses
import types
import typing
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from kio.schema.errors import ErrorCode


@cache
def _hints(entity: type) -> dict[str, Any]:
    return typing.get_type_hints(entity)


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(arg for arg in typing.get_args(hint) if arg is not type(None))
    return hint


def _nullable(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)


def _neutral(hint: Any) -> Any:
    """A value that is fine where a caller says nothing: null where allowed, else zero or empty."""
    if _nullable(hint):
        return None
    if typing.get_origin(hint) is tuple:
        return ()
    if dataclasses.is_dataclass(hint):
        return build(typing.cast(type, hint), {})
    if issubclass(hint, timedelta):
        return timedelta()
    if issubclass(hint, datetime):
        return datetime.fromtimestamp(0, UTC)
    if issubclass(hint, uuid.UUID):
        return uuid.UUID(int=0)
    if issubclass(hint, ErrorCode):
        return ErrorCode.none
    for kind in (bool, int, float, str, bytes):
        if issubclass(hint, kind):
            return kind()
    raise TypeError(f"no neutral value for {hint}")


def _convert(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    hint = _without_none(hint)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        return tuple(_convert(inner, item) for item in value)
    if isinstance(value, Mapping):
        return build(hint, value)
    if isinstance(hint, type) and issubclass(hint, timedelta) and isinstance(value, int):
        return timedelta(milliseconds=value)
    return value


def build(entity: Any, values: Mapping[str, Any]) -> Any:
    """An entity from nested dicts."""
    hints = _hints(entity)
    given: dict[str, Any] = {}
    for field in dataclasses.fields(entity):
        if field.name in values:
            given[field.name] = _convert(hints[field.name], values[field.name])
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            given[field.name] = _neutral(hints[field.name])
    return entity(**given)
