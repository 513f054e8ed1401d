"""Keywords of JSON Schema that `jsonschema` evaluates without a bound: patterns, uniqueness, and all in number. Pure.

Patterns are run by RE2 in linear time. What RE2 does not support, such as look-ahead, is run by `re` where the caller
allows it, and is an error of the schema where not.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import re2
from jsonschema import ValidationError
from jsonschema.validators import extend

from headrace.schemas.errors import InvalidSchema
from headrace.schemas.steps import StepLimit

steps_left: ContextVar[StepLimit] = ContextVar("steps_left")
"""The steps of the check that is running."""

Keyword = Callable[[Any, Any, Any, Any], Any]
Search = Callable[[str], Any]
Patterns = Mapping[str, Search]

_COSTS = {"$ref": 10, "$dynamicRef": 10, "$recursiveRef": 10}
"""Steps of keywords that take longer than others."""
_SEARCHES_OF_A_STEP = 10
"""Patterns that are searched for in names of properties."""
_NOT_SCHEMAS = frozenset({"enum", "const", "default", "examples"})


def bounded(validator_class: Any, patterns: Patterns) -> Any:
    """The validator with keywords that count their steps, and with these patterns."""
    keywords: dict[str, Keyword] = dict(validator_class.VALIDATORS)
    keywords |= {
        "pattern": _pattern(patterns),
        "patternProperties": _pattern_properties(patterns),
        "additionalProperties": _additional_properties(patterns),
        "uniqueItems": _unique_items,
    }
    return extend(validator_class, {name: _counted(each, _COSTS.get(name, 1)) for name, each in keywords.items()})


def compiled_patterns(documents: list[Any], *, allows_any: bool) -> dict[str, Search]:
    """The patterns of documents. Raises `InvalidSchema`."""
    found: dict[str, Search] = {}
    evaluates_rest = False
    named = False
    pending = list(documents)
    while pending:
        each = pending.pop()
        if isinstance(each, list):
            pending += each
        elif isinstance(each, dict):
            pending += [part for name, part in each.items() if name not in _NOT_SCHEMAS]
            evaluates_rest |= "unevaluatedProperties" in each
            by_name = each.get("patternProperties")
            own = [each.get("pattern"), *(by_name if isinstance(by_name, dict) else ())]
            named |= isinstance(by_name, dict) and bool(by_name)
            found |= {text: _search(text, allows_any) for text in own if isinstance(text, str) and text not in found}
    if evaluates_rest and named and not allows_any:
        raise InvalidSchema("unevaluatedProperties together with patternProperties cannot be checked within bounds")
    return found


def without_dialect(value: Any) -> Any:
    """The document without `$schema`, with which `jsonschema` would go back to keywords without bounds."""
    if isinstance(value, list):
        return [without_dialect(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: each if name in _NOT_SCHEMAS else without_dialect(each)
        for name, each in value.items()
        if name != "$schema" or not isinstance(each, str)
    }


def _search(text: str, allows_any: bool) -> Search:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options).search  # type: ignore[no-any-return]
    except re2.error as error:
        if not allows_any:
            raise InvalidSchema(f"the pattern {text[:100]!r} cannot be run in linear time: {error}") from None
    try:
        return re.compile(text).search
    except re.error as error:
        raise InvalidSchema(f"the pattern {text[:100]!r} is not supported: {error}") from None


def _counted(keyword: Keyword, cost: int) -> Keyword:
    def count(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        steps_left.get().step(cost=cost)
        return keyword(validator, value, instance, schema)

    return count


def _pattern(patterns: Patterns) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if isinstance(instance, str) and not patterns[value](instance):
            yield ValidationError(f"{instance[:100]!r} does not match {value!r}")

    return check


def _pattern_properties(patterns: Patterns) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if not isinstance(instance, dict):
            return
        for pattern, subschema in value.items():
            search = patterns[pattern]
            steps_left.get().step(cost=len(instance) // _SEARCHES_OF_A_STEP)
            for name, each in instance.items():
                if search(name):
                    yield from validator.descend(each, subschema, path=name, schema_path=pattern)

    return check


def _additional_properties(patterns: Patterns) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if not isinstance(instance, dict):
            return
        named, by_pattern = schema.get("properties", {}), schema.get("patternProperties", ())
        steps_left.get().step(cost=len(instance) * len(by_pattern) // _SEARCHES_OF_A_STEP)
        for name, each in instance.items():
            if name in named or any(patterns[pattern](name) for pattern in by_pattern):
                continue
            if value is False:
                yield ValidationError(f"the property {name[:100]!r} is not allowed")
            else:
                yield from validator.descend(each, value, path=name)

    return check


def _unique_items(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if value is True and isinstance(instance, list) and len(set(map(_canonical, instance))) < len(instance):
        yield ValidationError("an item is there twice")


def _canonical(value: Any) -> str:
    """Equal texts for equal values of JSON, in which 1 and 1.0 are equal."""
    return json.dumps(_whole(value), sort_keys=True)


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {name: _whole(each) for name, each in value.items()}
    return value
