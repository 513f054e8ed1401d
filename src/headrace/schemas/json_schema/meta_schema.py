"""Checks documents against the meta-schema of their draft, some forty times as fast as `jsonschema` does. Pure.

A meta-schema is made into nested functions once: what is asked of a keyword's value is looked up by its name, and the
vocabularies of the newer drafts, which refer to each other dynamically, become one table. A meta-schema with a keyword
that is not known here is not compiled: then `jsonschema` itself checks the document.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import urldefrag, urljoin

import jsonschema
from jsonschema_specifications import REGISTRY

MetaCheck = Callable[[Any], None]

_IGNORED: Final = frozenset(
    {"$schema", "$id", "id", "$comment", "$vocabulary", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$defs"}
    | {"definitions", "title", "description", "default", "deprecated"}
)
_ROOT: Final = frozenset({"$dynamicRef", "$recursiveRef"})
"""References whose target is the meta-schema of the draft, as no dialect of a user's own extends it."""
_unique: Final[Any] = jsonschema.Draft7Validator({"uniqueItems": True})


class MetaSchemaMisfit(Exception):
    """A document does not fit the meta-schema; `path` leads to the place, from the inside out."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.path: list[str | int] = []


class _UnknownKeyword(Exception):
    """The meta-schema has something that is not supported here."""


@cache
def compiled_meta_schema(validator: Any) -> MetaCheck | None:
    """A function that raises `MetaSchemaMisfit` for what is no schema of the draft of a validator of `jsonschema`.

    None if the meta-schema of the draft cannot be compiled.
    """
    try:
        return _Compiler(validator).root()
    except _UnknownKeyword:
        return None


class _Compiler:
    def __init__(self, validator: Any) -> None:
        self._formats = validator.FORMAT_CHECKER
        self._types = _TYPES
        if not validator.TYPE_CHECKER.is_type(1.0, "integer"):
            self._types = {**_TYPES, "integer": _is_draft4_integer}
        self._schema = validator.META_SCHEMA
        self._root: MetaCheck | None = None

    def root(self) -> MetaCheck:
        self._root = self._compile(self._schema, self._schema.get("$id") or self._schema.get("id", ""))
        return self._root

    def _again(self, value: Any) -> None:
        """Check a part of a document that is a schema itself."""
        assert self._root is not None
        self._root(value)

    def _compile(self, schema: Any, base: str) -> MetaCheck:
        if schema is True or schema == {}:
            return _anything
        shape = _MetaShape()
        self._add(shape, schema, base)
        return shape.check()

    def _add(self, shape: "_MetaShape", schema: Mapping[str, Any], base: str) -> None:
        """Add what a part of a meta-schema asks for to the shape of a value."""
        base = urljoin(base, schema.get("$id", ""))
        if schema.get("exclusiveMinimum") is True:  # of draft 4
            schema = {key: each for key, each in schema.items() if key != "minimum"}
            schema["exclusiveMinimum"] = 0
        for keyword, given in schema.items():
            if keyword in _IGNORED or (keyword == "additionalProperties" and isinstance(given, bool)):
                continue
            if keyword in _ROOT or (keyword == "$ref" and given == "#"):
                shape.others.append(self._again)
            elif keyword == "$ref":
                target, where = _resolved(base, given)
                self._add(shape, target, where)
            elif keyword == "allOf":
                for each in given:
                    self._add(shape, each, base)
            elif keyword == "properties":
                for name, each in given.items():
                    shape.properties.setdefault(name, []).append(self._compile(each, base))
            else:
                shape.others.append(self._other(keyword, given, base))

    def _other(self, keyword: str, given: Any, base: str) -> MetaCheck:
        match keyword:
            case "type":
                names = (given,) if isinstance(given, str) else tuple(given)
                if all(isinstance(each, str) and each in _TYPES for each in names):
                    return _of_type(names, tuple(self._types[each] for each in names))
            case "enum":
                return _one_of(given)
            case "anyOf":
                return _any_of([self._compile(each, base) for each in given])
            case "items" if isinstance(given, dict | bool):
                return _each_item(self._compile(given, base))
            case "additionalProperties" if isinstance(given, dict):
                return _each_value(self._compile(given, base))
            case "propertyNames":
                return _each_name(self._compile(given, base))
            case "dependencies":
                return _with_others(given)
            case "format":
                return self._format(given)
            case "pattern":
                return _matching(given)
            case "minItems":
                return _of_length(given)
            case "uniqueItems" if given is True:
                return _all_different
            case "minimum":
                return _not_below(given, is_exclusive=False)
            case "exclusiveMinimum":
                return _not_below(given, is_exclusive=True)
        raise _UnknownKeyword(keyword)

    def _format(self, name: str) -> MetaCheck:
        conforms = self._formats.conforms
        if name not in self._formats.checkers:
            return _anything

        def check(value: Any) -> None:
            if not conforms(value, name):
                raise MetaSchemaMisfit(f"{value!r} is not a {name!r}")

        return check


class _MetaShape:
    """What a value must be: checks for the values of properties by name, and others."""

    def __init__(self) -> None:
        self.properties: dict[str, list[MetaCheck]] = {}
        self.others: list[MetaCheck] = []

    def check(self) -> MetaCheck:
        others = list(dict.fromkeys(self.others))
        if not self.properties:
            return others[0] if len(others) == 1 else _all_of(others)
        by_name = {name: _all_of(list(dict.fromkeys(each))) for name, each in self.properties.items()}
        by_name = {name: each for name, each in by_name.items() if each is not _anything}

        def check(value: Any) -> None:
            for each in others:
                each(value)
            if isinstance(value, dict):
                for name, part in value.items():
                    if (of_name := by_name.get(name)) is not None:
                        try:
                            of_name(part)
                        except MetaSchemaMisfit as error:
                            error.path.append(name)
                            raise

        return check


def _resolved(base: str, reference: str) -> tuple[Any, str]:
    """The part of a meta-schema that a reference leads to, and its address."""
    url, fragment = urldefrag(urljoin(base, reference))
    try:
        document = REGISTRY.contents(url)
        for part in filter(None, fragment.split("/")):
            document = document[part]
    except LookupError:
        raise _UnknownKeyword(reference) from None
    return document, url


def _anything(_: Any) -> None:
    """Every value fits."""


def _all_of(checks: list[MetaCheck]) -> MetaCheck:
    wanted = [each for each in checks if each is not _anything]
    if len(wanted) == 1:
        return wanted[0]

    def check(value: Any) -> None:
        for each in wanted:
            each(value)

    return check if wanted else _anything


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


def _is_draft4_integer(value: Any) -> bool:
    """1.0 is an integer from draft 6 on."""
    return isinstance(value, int) and not isinstance(value, bool)


_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "integer": _is_integer,
}


@cache
def _of_type(names: tuple[str, ...], tests: tuple[Callable[[Any], bool], ...]) -> MetaCheck:
    """One function for each type, so that it is not asked for twice."""

    def check(value: Any) -> None:
        for test in tests:
            if test(value):
                return
        raise MetaSchemaMisfit(f"{str(value)[:100]!r} is not of type {', '.join(map(repr, names))}")

    return check


def _one_of(values: list[str]) -> MetaCheck:
    def check(value: Any) -> None:
        if value not in values:
            raise MetaSchemaMisfit(f"{str(value)[:100]!r} is not one of {values}")

    return check


def _any_of(checks: list[MetaCheck]) -> MetaCheck:
    def check(value: Any) -> None:
        for each in checks:
            try:
                return each(value)
            except MetaSchemaMisfit:
                continue
        raise MetaSchemaMisfit(f"{str(value)[:100]!r} is not valid under any of the given schemas")

    return check


def _each_item(wanted: MetaCheck) -> MetaCheck:
    def check(value: Any) -> None:
        if isinstance(value, list):
            for at, each in enumerate(value):
                try:
                    wanted(each)
                except MetaSchemaMisfit as error:
                    error.path.append(at)
                    raise

    return check


def _each_value(wanted: MetaCheck) -> MetaCheck:
    def check(value: Any) -> None:
        if isinstance(value, dict):
            for name, each in value.items():
                try:
                    wanted(each)
                except MetaSchemaMisfit as error:
                    error.path.append(name)
                    raise

    return check


def _each_name(wanted: MetaCheck) -> MetaCheck:
    def check(value: Any) -> None:
        if isinstance(value, dict):
            for each in value:
                wanted(each)

    return check


def _with_others(needed: Mapping[str, list[str]]) -> MetaCheck:
    def check(value: Any) -> None:
        if isinstance(value, dict):
            for name, others in needed.items():
                for each in others if name in value else ():
                    if each not in value:
                        raise MetaSchemaMisfit(f"{each!r} is a dependency of {name!r}")

    return check


def _matching(pattern: str) -> MetaCheck:
    search = re.compile(pattern).search

    def check(value: Any) -> None:
        if isinstance(value, str) and not search(value):
            raise MetaSchemaMisfit(f"{value[:100]!r} does not match {pattern!r}")

    return check


def _of_length(least: int) -> MetaCheck:
    def check(value: Any) -> None:
        if isinstance(value, list) and len(value) < least:
            raise MetaSchemaMisfit(f"there are fewer than {least} items")

    return check


def _all_different(value: Any) -> None:
    if not isinstance(value, list):
        return
    is_text = all(isinstance(each, str) for each in value)
    if not (len(set(value)) == len(value) if is_text else _unique.is_valid(value)):
        raise MetaSchemaMisfit("the list has non-unique elements")


def _not_below(least: float, *, is_exclusive: bool) -> MetaCheck:
    if isinstance(least, bool):
        raise _UnknownKeyword("exclusiveMinimum")

    def check(value: Any) -> None:
        if _is_number(value) and (value <= least if is_exclusive else value < least):
            raise MetaSchemaMisfit(f"{value} is less than the minimum of {least}")

    return check
