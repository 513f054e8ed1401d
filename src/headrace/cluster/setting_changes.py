"""Which part of a change of settings is stored, and what the log says about it."""

import logging
from collections.abc import Callable, Mapping

from headrace.config.settings import Setting, Value, storable
from headrace.model.errors import InvalidSettings, SettingsError

log = logging.getLogger(__name__)


class UnusedSettings:
    """Logs, once for each name, that a setting of Kafka's that was changed has no effect here."""

    def __init__(self) -> None:
        self._noted: set[str] = set()

    def note(self, rows: Mapping[str, Setting], texts: Mapping[str, str], where: str) -> None:
        """`where`: what they were set on, for example `the topic orders`. A default is not worth a line."""
        for name, text in texts.items():
            row = rows.get(name)
            if row is None or row.has_effect or name in self._noted:
                continue
            if row.parse(text) != row.default:
                self._noted.add(name)
                log.warning("%s was set on %s. %s", name, where, row.doc)


def to_store(
    rows: Mapping[str, Setting],
    wanted: Mapping[str, str],
    level: int,
    default: Callable[[Setting], Value],
    check: Callable[[Mapping[str, str]], object],
) -> dict[str, str]:
    """The part of `wanted` that is stored at a feature level, checked; `InvalidSettings` says what is wrong with it."""
    try:
        check(wanted)
        return storable(rows, wanted, level, default)
    except SettingsError as error:
        raise InvalidSettings(str(error)) from None
