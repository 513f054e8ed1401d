"""The conditions of a policy statement: operators, context keys and patterns, by AWS's rules. Pure.

    "Condition": {OPERATOR: {KEY: VALUE or [VALUE, …]}}

- All operators and all keys of a condition must hold. Of the values one must match; for a negated operator, none.
- A key that the request does not have fails an operator, and satisfies a negated one and one with `IfExists`.
- `ForAnyValue:` needs a value in the request; `ForAllValues:` holds without one.

`MalformedPolicy` is raised for everything else when a policy is read, so that nothing is silently ignored.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address, ip_network
from typing import Any

_SUPPORTED_KEYS = frozenset(
    {
        "aws:currenttime",
        "aws:epochtime",
        "aws:principalaccount",
        "aws:principalarn",
        "aws:principalisawsservice",
        "aws:principaltype",
        "aws:referer",
        "aws:requestedregion",
        "aws:resourceaccount",
        "aws:securetransport",
        "aws:sourceip",
        "aws:useragent",
        "aws:userid",
        "aws:username",
        "aws:viaawsservice",
    }
)
_ABSENT_KEYS = frozenset(
    {
        "aws:calledvia",
        "aws:calledviafirst",
        "aws:calledvialast",
        "aws:federatedprovider",
        "aws:multifactorauthage",
        "aws:multifactorauthpresent",
        "aws:principalorgid",
        "aws:principalorgpaths",
        "aws:principalservicename",
        "aws:principalservicenameslist",
        "aws:resourceorgid",
        "aws:resourceorgpaths",
        "aws:sourceaccount",
        "aws:sourcearn",
        "aws:sourceidentity",
        "aws:sourceorgid",
        "aws:sourceorgpaths",
        "aws:sourcevpc",
        "aws:sourcevpcarn",
        "aws:sourcevpce",
        "aws:tokenissuetime",
        "aws:vpcsourceip",
    }
)
"""Keys of requests that no client of a broker makes: by services of AWS, from a VPC, of organizations or sessions."""
_RESOURCE_TAG = "aws:resourcetag/"
_PRINCIPAL_TAG = "aws:principaltag/"
"""Absent, too: users have no tags."""
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_LITERALS = frozenset("*?$")
_WILDCARDS = frozenset("*?")
_ANY, _ONE = "**", "??"
_ARN_PARTS = 6
_SET_OPERATORS = ("ForAnyValue:", "ForAllValues:")
_IF_EXISTS = "IfExists"
_NULL = "Null"

PolicyContext = Mapping[str, str]
"""The values of a request by condition key in lower case."""


class MalformedPolicy(ValueError):
    """A policy that AWS would refuse, or that the broker cannot evaluate."""


class UnresolvedVariable(LookupError):
    """A policy variable such as `${aws:username}` that the request has no value for."""


# -- patterns


def contains_variable(text: str) -> bool:
    return _VARIABLE.search(text) is not None


def check_variables(text: str) -> None:
    for name in _VARIABLE.findall(text):
        if name not in _LITERALS:
            check_key(name)


def matches_text(pattern: str, text: str, context: PolicyContext | None, *, has_wildcards: bool = True) -> bool:
    """Whether a text matches a pattern with `*` and `?`. With a `context`, `${…}` stands for the request's value, in
    which `*` and `?` are ordinary characters."""
    if (context is None or "${" not in pattern) and (not has_wildcards or not _WILDCARDS & set(pattern)):
        return pattern == text
    return _matches(_tokens(pattern, context, has_wildcards), text)


def _tokens(pattern: str, context: PolicyContext | None, has_wildcards: bool) -> list[str]:
    """Characters, with a `*` or `?` that is a wildcard as `**` and `??`."""
    # With one group in the expression, every other piece is the name of a variable.
    pieces = [pattern] if context is None else _VARIABLE.split(pattern)
    found: list[str] = []
    for number, piece in enumerate(pieces):
        if number % 2 and context is not None:
            found += _value_of(piece, context)
        else:
            found += [each * 2 if has_wildcards and each in _WILDCARDS else each for each in piece]
    return found


def _matches(tokens: Sequence[str], text: str) -> bool:
    """Whether a text matches, in time that is at most the product of both lengths: an expression would need more."""
    at, token, star, star_at = 0, 0, -1, 0
    while at < len(text):
        if token < len(tokens) and tokens[token] == _ANY:
            star, star_at = token, at
            token += 1
        elif token < len(tokens) and tokens[token] in (_ONE, text[at]):
            token += 1
            at += 1
        elif star >= 0:
            star_at += 1
            token, at = star + 1, star_at
        else:
            return False
    return all(each == _ANY for each in tokens[token:])


def _value_of(name: str, context: PolicyContext) -> str:
    if name in _LITERALS:
        return name
    value = context.get(name.lower())
    if value is None:
        raise UnresolvedVariable(name)
    return value


def matches_arn(pattern: str, arn: str, context: PolicyContext | None) -> bool:
    """Like `matches_text`, by each of the six parts of an ARN: a `*` in one does not reach into the next."""
    parts, pattern_parts = arn.split(":", _ARN_PARTS - 1), _arn_parts(pattern)
    if len(pattern_parts) < _ARN_PARTS:
        return pattern.endswith("*") and matches_text(pattern, arn, context)
    return len(parts) == _ARN_PARTS and all(
        matches_text(each, part, context) for each, part in zip(pattern_parts, parts, strict=True)
    )


def _arn_parts(pattern: str) -> list[str]:
    """The parts of an ARN pattern, in which the colon of a variable separates nothing."""
    hidden = _VARIABLE.sub(lambda found: found.group().replace(":", "\0"), pattern)
    return [part.replace("\0", ":") for part in hidden.split(":", _ARN_PARTS - 1)]


def check_arn_pattern(pattern: str) -> None:
    parts = _arn_parts(pattern)
    if pattern == "*":
        return
    if parts[0] != "arn" or (len(parts) < _ARN_PARTS and not pattern.endswith("*")):
        raise MalformedPolicy(f"{pattern} is no ARN")


# -- operators


def _text_test(value: str, given: str, context: PolicyContext | None, *, has_wildcards: bool, fold: bool) -> bool:
    if not fold:
        return matches_text(value, given, context, has_wildcards=has_wildcards)
    lowered = None if context is None else {name: each.casefold() for name, each in context.items()}
    return matches_text(value.casefold(), given.casefold(), lowered, has_wildcards=has_wildcards)


def _ip_test(value: str, given: str, _: PolicyContext | None) -> bool:
    try:
        address = ip_address(given.removeprefix("::ffff:"))
    except ValueError:
        return False
    return address in ip_network(value, strict=False)


def _bool_test(value: str, given: str, _: PolicyContext | None) -> bool:
    return value.lower() == given.lower()


def _number_test(
    value: str,
    given: str,
    _: PolicyContext | None,
    *,
    read: Callable[[str], float],
    compare: Callable[[float, float], bool],
) -> bool:
    try:
        return compare(read(given), read(value))
    except ValueError:
        return False


def _date(text: str) -> float:
    """Seconds since the epoch, of a date in ISO 8601 or of such a number."""
    if re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,9})?", text):
        return float(text)
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def _number(text: str) -> float:
    if re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,9})?", text) is None:
        raise ValueError(f"{text} is no number")
    return float(text)


def _check_bool(value: str) -> object:
    if value.lower() not in ("true", "false"):
        raise ValueError(f"{value} is neither true nor false")
    return None


_Test = Callable[[str, str, PolicyContext | None], bool]


@dataclass(frozen=True, slots=True)
class _Operator:
    test: _Test
    check: Callable[[str], object]
    """Raises ValueError for a value that it cannot compare with."""
    is_negated: bool = False


_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "Equals": lambda given, value: given == value,
    "LessThan": lambda given, value: given < value,
    "LessThanEquals": lambda given, value: given <= value,
    "GreaterThan": lambda given, value: given > value,
    "GreaterThanEquals": lambda given, value: given >= value,
}


def _make_operators() -> dict[str, _Operator]:
    equals = partial(_text_test, has_wildcards=False, fold=False)
    like = partial(_text_test, has_wildcards=True, fold=False)
    folded = partial(_text_test, has_wildcards=False, fold=True)
    made = {
        "StringEquals": _Operator(equals, check_variables),
        "StringNotEquals": _Operator(equals, check_variables, is_negated=True),
        "StringEqualsIgnoreCase": _Operator(folded, check_variables),
        "StringNotEqualsIgnoreCase": _Operator(folded, check_variables, is_negated=True),
        "StringLike": _Operator(like, check_variables),
        "StringNotLike": _Operator(like, check_variables, is_negated=True),
        "IpAddress": _Operator(_ip_test, partial(ip_network, strict=False)),
        "NotIpAddress": _Operator(_ip_test, partial(ip_network, strict=False), is_negated=True),
        "Bool": _Operator(_bool_test, _check_bool),
    }
    for suffix in ("Equals", "Like"):
        made[f"Arn{suffix}"] = _Operator(matches_arn, check_arn_pattern)
        made[f"ArnNot{suffix}"] = _Operator(matches_arn, check_arn_pattern, is_negated=True)
    for prefix, read in (("Numeric", _number), ("Date", _date)):
        for suffix, compare in _COMPARISONS.items():
            made[prefix + suffix] = _Operator(partial(_number_test, read=read, compare=compare), read)
        same = partial(_number_test, read=read, compare=_COMPARISONS["Equals"])
        made[f"{prefix}NotEquals"] = _Operator(same, read, is_negated=True)
    return made


_OPERATORS = _make_operators()


# -- conditions


@dataclass(frozen=True, slots=True)
class PolicyCondition:
    """One key of a condition with its operator and values."""

    key: str
    values: tuple[str, ...]
    operator: _Operator | None
    """None is `Null`: the values say whether the key is absent."""
    if_missing: bool
    """Whether the condition holds for a request without the key."""

    def holds(self, context: PolicyContext, variables: PolicyContext | None) -> bool:
        given = context.get(self.key)
        if self.operator is None:
            return ("true" if given is None else "false") in self.values
        if given is None:
            return self.if_missing
        return any(self.operator.test(value, given, variables) for value in self.values) != self.operator.is_negated


def read_conditions(document: object) -> tuple[PolicyCondition, ...]:
    if not isinstance(document, dict):
        raise MalformedPolicy("a Condition is an object of operators")
    found: list[PolicyCondition] = []
    for operator, keys in document.items():
        if not isinstance(keys, dict) or not keys:
            raise MalformedPolicy(f"the condition operator {operator} needs an object of keys")
        found += [_condition(operator, key, values) for key, values in keys.items()]
    return tuple(found)


def _condition(operator: str, key: str, document: Any) -> PolicyCondition:
    check_key(key)
    values = tuple(_text_of(each) for each in (document if isinstance(document, list) else [document]))
    if not values:
        raise MalformedPolicy(f"the condition on {key} has no value")
    name = operator.removesuffix(_IF_EXISTS)
    is_for_any, is_for_all = (name.startswith(prefix) for prefix in _SET_OPERATORS)
    name = name.partition(":")[2] if is_for_any or is_for_all else name
    if name == _NULL and operator == _NULL:
        values = tuple(each.lower() for each in values)
        _check_values(_check_bool, values, key)
        return PolicyCondition(key.lower(), values, None, False)
    found = _OPERATORS.get(name)
    if found is None:
        raise MalformedPolicy(f"{operator} is no condition operator that is supported")
    _check_values(found.check, values, key)
    if_missing = is_for_all or operator.endswith(_IF_EXISTS) or (found.is_negated and not is_for_any)
    return PolicyCondition(key.lower(), values, found, if_missing)


def _check_values(check: Callable[[str], object], values: Sequence[str], key: str) -> None:
    for value in values:
        try:
            check(value)
        except MalformedPolicy:
            raise
        except ValueError as error:
            raise MalformedPolicy(f"the condition on {key} has a wrong value: {error}") from None


def _text_of(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise MalformedPolicy("the value of a condition is a string, a number or a boolean")


def check_key(name: str) -> None:
    """`MalformedPolicy` for a condition key that the broker cannot evaluate."""
    lowered = name.lower()
    if lowered in _SUPPORTED_KEYS or lowered in _ABSENT_KEYS or lowered.startswith((_RESOURCE_TAG, _PRINCIPAL_TAG)):
        return
    raise MalformedPolicy(f"{name} is no condition key that is supported")
