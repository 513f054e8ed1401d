"""The log levels of this broker's loggers as settings (resource type BROKER_LOGGER). Changes last until a restart.

`root` is the default for all loggers; a logger without a level inherits its parent's. Names are those of Headrace's
modules, levels those of Kafka.
"""

import logging
from collections.abc import Iterator, Mapping

from headrace.config.settings import Kind, Setting
from headrace.model.errors import InvalidSettings, ProtocolError

ROOT = "root"
_PACKAGE = "headrace"
_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES = {number: name for name, number in _LEVELS.items()}
_DOC = "What this logger writes: everything from this level on. Until the next restart; for good: log.level."


def logger_rows() -> dict[str, Setting]:
    """Return a setting for each logger that exists now."""
    known = logging.root.manager.loggerDict
    names = sorted(name for name in known if name.startswith(f"{_PACKAGE}."))
    return {name: Setting(name, Kind.STRING, "", _DOC, choices=tuple(_LEVELS)) for name in (ROOT, *names)}


def logger_level(name: str) -> str:
    """Return the logger's effective level."""
    return _name(_logger(name).getEffectiveLevel())


def set_levels() -> dict[str, str]:
    """Return the explicitly set levels by logger; `root` is always among them."""
    return dict(_set_levels())


def _set_levels() -> Iterator[tuple[str, str]]:
    for name in logger_rows():
        if name == ROOT or _logger(name).level != logging.NOTSET:
            yield name, logger_level(name)


def change_levels(before: Mapping[str, str], wanted: Mapping[str, str], *, validate_only: bool) -> None:
    """Apply the levels in `wanted` that differ from `before`; a logger missing from it inherits its parent's again."""
    if ROOT not in wanted:
        raise ProtocolError("the level of the root logger cannot be removed")
    for name, level in wanted.items():
        if level.upper() not in _LEVELS:
            raise InvalidSettings(f"{name}={level} is no level: use {', '.join(_LEVELS)}")
    if validate_only:
        return
    for name in before.keys() - wanted.keys():
        _logger(name).setLevel(logging.NOTSET)
    for name, level in wanted.items():
        if before.get(name) != level:
            _logger(name).setLevel(_LEVELS[level.upper()])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(_PACKAGE if name == ROOT else name)


def _name(number: int) -> str:
    return _NAMES.get(number, "INFO")
