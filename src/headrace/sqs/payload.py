"""Converts requests whose members are not of the types that an action has, as AWS does.

A number or a boolean is accepted as a string; any other value of the wrong type is an error in AWS's words. Only
requests that the strict decoder refused are converted.
"""

from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from headrace.sqs import errors

_LIST = "Start of list found where not expected"
_MAP = "Start of structure or map found where not expected."


def fitted(value: Any, kind: Any) -> Any:
    """The value as JSON of this type; `SqsError` if it cannot be converted. Unknown members are left out."""
    if get_origin(kind) in (Union, UnionType):
        if value is None:
            return None
        (kind,) = [each for each in get_args(kind) if each is not NoneType]
    if kind is str or kind is bytes:
        return _text(value)
    if kind is int:
        return _integer(value)
    if get_origin(kind) is list:
        return _items(value, get_args(kind)[0])
    if get_origin(kind) is dict:
        return {name: fitted(each, get_args(kind)[1]) for name, each in _entries(value).items()}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind)
        return {name: fitted(each, hints[name]) for name, each in _entries(value).items() if name in hints}
    return value


def _text(value: Any) -> str:
    _refuse_containers(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _integer(value: Any) -> int:
    _refuse_containers(value)
    if type(value) is int:
        return value
    found = "STRING" if isinstance(value, str) else "DECIMAL" if isinstance(value, float) else str(value).upper()
    raise errors.malformed(f"{found}_VALUE can not be converted to an Integer")


def _items(value: Any, kind: Any) -> list[Any]:
    if isinstance(value, dict):
        raise errors.malformed(_MAP)
    if not isinstance(value, list):
        raise errors.malformed("Expected list or null")
    return [fitted(each, kind) for each in value]


def _entries(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        raise errors.malformed(_LIST)
    if not isinstance(value, dict):
        raise errors.malformed("Unexpected value type in payload")
    return value


def _refuse_containers(value: Any) -> None:
    if isinstance(value, list):
        raise errors.malformed(_LIST)
    if isinstance(value, dict):
        raise errors.malformed(_MAP)
