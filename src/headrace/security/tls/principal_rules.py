"""`tls.principal.mapping.rules`: a certificate's distinguished name to a user's name, by Kafka's rules. Pure.

Rules are separated by commas and tried in order; the first whose pattern matches the whole name decides:

- `RULE:pattern/replacement/` with `$1` … for groups; `L` or `U` at the end turns the result to lower or upper case;
  `\\/` is a slash in either part.
- `DEFAULT`: the distinguished name as it is.

A name that no rule matches has no principal, so the connection is refused.

Patterns are RE2's (`docs/adr/0015-re2-for-patterns.md`), matched in linear time; look-ahead and back-references are
errors. Unlike in Kafka, a reference to a group that the pattern does not have is an error too, not literal text.
"""

import re
from dataclasses import dataclass
from typing import Protocol

import re2

from headrace.model.errors import SettingsError

DEFAULT_RULES = "DEFAULT"

_SETTING = "tls.principal.mapping.rules"
_PATTERN_MAX_BYTES = 1024 * 1024
_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)", re.DOTALL)
_REFERENCE = re.compile(r"\\(.)|\$(\d+)|([\\$])", re.DOTALL)


class _Match(Protocol):
    def group(self, index: int, /) -> str | None: ...


class _Pattern(Protocol):
    groups: int

    def fullmatch(self, text: str, /) -> _Match | None: ...


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: _Pattern
    replacement: tuple[str | int, ...]
    """Literal text, and the numbers of groups."""
    case: str

    def apply(self, name: str) -> str | None:
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        text = "".join(part if isinstance(part, str) else match.group(part) or "" for part in self.replacement)
        return text.lower() if self.case == "L" else text.upper() if self.case == "U" else text


class PrincipalRules:
    def __init__(self, text: str = DEFAULT_RULES) -> None:
        """Raise `SettingsError` for a rule that is not valid."""
        self._rules: list[_Rule | None] = _parse(text)

    def user_name(self, distinguished_name: str) -> str | None:
        """The user's name, without `User:`. None if no rule matches, or the result is empty."""
        for rule in self._rules:
            name = distinguished_name if rule is None else rule.apply(distinguished_name)
            if name is not None:
                return name or None
        return None


def _parse(text: str) -> list[_Rule | None]:
    text = text.strip() or DEFAULT_RULES
    rules: list[_Rule | None] = []
    at = 0
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None:
            raise _error(text[at:], "a rule is DEFAULT or RULE:pattern/replacement/ with L or U behind it")
        rest = text[found.end() :].lstrip()
        if rest and not rest.startswith(","):
            raise _error(text[at:], f"{rest!r} follows where a comma must separate two rules")
        rules.append(None if found[1] else _rule(found[0], found[2], found[3], found[4]))
        at = len(text) - len(rest[1:].lstrip())
    return rules


def _rule(text: str, pattern: str, replacement: str, case: str) -> _Rule:
    options = re2.Options()
    options.max_mem = _PATTERN_MAX_BYTES
    options.log_errors = False
    try:
        compiled = re2.compile(pattern.replace("\\/", "/"), options)
    except re2.error as error:
        reason = error.args[0]
        raise _error(
            text, f"the pattern is not valid: {reason.decode() if isinstance(reason, bytes) else reason}"
        ) from error
    return _Rule(compiled, tuple(_replacement(text, replacement, compiled.groups)), case)


def _replacement(text: str, replacement: str, groups: int) -> list[str | int]:
    parts: list[str | int] = []
    at = 0
    for found in _REFERENCE.finditer(replacement):
        parts.append(replacement[at : found.start()])
        at = found.end()
        if found[1]:
            parts.append(found[1])
        elif found[2]:
            parts += _group(text, found[2], groups)
        else:
            raise _error(text, "in the replacement, $ must be followed by the number of a group; \\$ is a dollar sign")
    parts.append(replacement[at:])
    return [part for part in parts if part != ""]


def _group(text: str, digits: str, groups: int) -> tuple[int, str]:
    """As in Java, `$12` is group 1 followed by `2` where there are fewer than 12 groups."""
    for length in range(len(digits), 0, -1):
        if int(digits[:length]) <= groups:
            return int(digits[:length]), digits[length:]
    raise _error(text, f"the replacement refers to ${digits}, and the pattern has {groups} groups")


def _error(rule: str, reason: str) -> SettingsError:
    return SettingsError(f"{_SETTING}: {rule!r} is not valid: {reason}")
