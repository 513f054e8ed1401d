"""The loggers of this broker as settings (resource type BROKER_LOGGER): their levels, changed until the next restart.

`root` stands for all of them; a logger whose level was not set has that of its parent. Names are those of Headrace's
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
    """Every logger there is now."""
    known = logging.root.manager.loggerDict
    names = sorted(name for name in known if name.startswith(f"{_PACKAGE}."))
    return {name: Setting(name, Kind.STRING, "", _DOC, choices=tuple(_LEVELS)) for name in (ROOT, *names)}


def logger_level(name: str) -> str:
    """The level in force."""
    return _name(_logger(name).getEffectiveLevel())


def set_levels() -> dict[str, str]:
    """The levels that were set, by logger; that of `root` always is."""
    return dict(_set_levels())


def _set_levels() -> Iterator[tuple[str, str]]:
    for name in logger_rows():
        if name == ROOT or _logger(name).level != logging.NOTSET:
            yield name, logger_level(name)


def change_levels(before: Mapping[str, str], wanted: Mapping[str, str], *, validate_only: bool) -> None:
    """Set the levels that are new in `wanted`; one that is missing is that of the parent again."""
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
