"""The definition of a setting: one row with name, type, default, bounds, doc. Rows drive validation, DescribeConfigs,
AlterConfigs, the config file, command-line flags and the generated reference in `docs/settings.md`.

Topic settings are in `topic.py`, broker settings in `broker_rows.py` with their defaults in `broker.py`. Defaults are
defined nowhere else.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from math import isfinite
from typing import Any

from headrace.model.errors import SettingsError
from headrace.model.features import FIRST_LEVEL, needed


class Kind(Enum):
    """The type of a setting, with Kafka's number for it in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_INTEGERS = {
    Kind.SHORT: (-(2**15), 2**15 - 1),
    Kind.INT: (-(2**31), 2**31 - 1),
    Kind.LONG: (-(2**63), 2**63 - 1),
}

Value = bool | int | float | str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting."""

    name: str
    kind: Kind
    default: Value
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    dynamic: bool = True
    """True if a change takes effect without a restart."""
    broker_name: str | None = None
    """For topic settings: the broker setting that gives the default for all topics."""
    level: int = FIRST_LEVEL
    """The first feature level at which it may be stored: older brokers refuse metadata with unknown settings."""
    empty_level: int = FIRST_LEVEL
    """The first feature level at which an empty list may be stored."""
    has_effect: bool = True
    """False for a Kafka setting that is accepted, stored and described for Kafka's tools, but has no effect."""
    only_default: str = ""
    """Why values other than the default are refused; empty if they are not."""
    pattern: str = ""
    """A regular expression for the value, or for each item of a list; empty if anything is allowed."""
    form: str = ""
    """A description of `pattern`, for errors."""

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")

    def parse(self, text: str) -> Value:
        """Parse and validate `text`; `SettingsError` says what is wrong and what is allowed."""
        value = self._parse_kind(text.strip())
        if isinstance(value, int | float) and not isinstance(value, bool):
            low, high = self.minimum, self.maximum
            if (low is not None and value < low) or (high is not None and value > high):
                raise SettingsError(f"{self.name}={text} is out of range: it must be {self._range()}")
        if self.choices:
            for item in value if isinstance(value, tuple) else (value,):
                if item not in self.choices:
                    raise SettingsError(f"{self.name}={text} is not allowed: use {' or '.join(self.choices)}")
        if self.pattern:
            for item in value if isinstance(value, tuple) else (value,):
                if re.fullmatch(self.pattern, str(item)) is None:
                    raise SettingsError(f"{self.name}={text} is not allowed: {item} is not {self.form}")
        if self.only_default and value != self.default:
            shown = self.name if self.kind is Kind.PASSWORD else f"{self.name}={text}"
            raise SettingsError(f"{shown} is not supported: {self.only_default}")
        return value

    def _parse_kind(self, text: str) -> Value:
        if self.kind is Kind.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise SettingsError(f"{self.name}={text} is not a boolean: use true or false")
            return text.lower() == "true"
        if self.kind in _INTEGERS:
            try:
                number = int(text)
            except ValueError:
                raise SettingsError(f"{self.name}={text} is not a whole number") from None
            low, high = _INTEGERS[self.kind]
            if not low <= number <= high:
                raise SettingsError(f"{self.name}={text} does not fit the type {self.kind.name.lower()}")
            return number
        if self.kind is Kind.DOUBLE:
            try:
                real = float(text)
            except ValueError:
                raise SettingsError(f"{self.name}={text} is not a number") from None
            if not isfinite(real):
                raise SettingsError(f"{self.name}={text} is not a finite number")
            return real
        if self.kind is Kind.LIST:
            return tuple(item.strip() for item in text.split(",") if item.strip())
        return text

    def level_for(self, text: str) -> int:
        """The first feature level at which this value may be stored."""
        return self.level if self.parse(text) else max(self.level, self.empty_level)

    def _range(self) -> str:
        if self.minimum is not None and self.maximum is not None:
            return f"from {self.minimum} to {self.maximum}"
        return f"at least {self.minimum}" if self.minimum is not None else f"at most {self.maximum}"

    def render(self, value: Any) -> str:
        """The value as text, as Kafka's tools print it; `parse(render(v)) == v`."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)


def table(*rows: Setting) -> Mapping[str, Setting]:
    return {row.name: row for row in rows}


def parse_all(rows: Mapping[str, Setting], texts: Mapping[str, str]) -> dict[str, Value]:
    """The parsed values of `texts` by attribute name; for an unknown name, `SettingsError` suggests the closest one."""
    values: dict[str, Value] = {}
    for name, text in texts.items():
        row = rows.get(name)
        if row is None:
            raise SettingsError(f"unknown setting {name}{did_you_mean(name, rows)}")
        values[row.attribute] = row.parse(text)
    return values


def storable(
    rows: Mapping[str, Setting], texts: Mapping[str, str], level: int, default: Callable[[Setting], Value]
) -> dict[str, str]:
    """The subset of `texts` that may be stored at a feature level.

    A setting that needs a higher level is omitted if it equals `default`: older brokers do not see it, and nothing is
    lost. With any other value it raises `SettingsError`.
    """
    result: dict[str, str] = {}
    for name, text in texts.items():
        row = rows.get(name)
        if row is None or row.level_for(text) <= level:
            result[name] = text
        elif row.parse(text) != default(row):
            what = name if row.level > level else f"{name} without a value"
            raise SettingsError(needed(what, row.level_for(text), level))
    return result


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the closest existing one, if one is close."""
    close = get_close_matches(name, candidates, n=1)
    return f"; did you mean {close[0]}?" if close else ""
