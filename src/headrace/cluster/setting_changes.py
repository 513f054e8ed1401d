"""Dynamic settings changes: validation, and a warning for Kafka settings that have no effect here."""

import logging
from collections.abc import Callable, Mapping

from headrace.config.settings import Setting, Value, storable
from headrace.model.errors import InvalidSettings, SettingsError

log = logging.getLogger(__name__)


class UnusedSettings:
    """Logs a warning, once per name, when a Kafka setting without effect here is changed."""

    def __init__(self) -> None:
        self._noted: set[str] = set()

    def note(self, rows: Mapping[str, Setting], texts: Mapping[str, str], where: str) -> None:
        """`where` is the resource, for example `the topic orders`. Setting the default value logs nothing."""
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
    """Validate `wanted` and return the subset stored at this feature level; raises `InvalidSettings`."""
    try:
        check(wanted)
        return storable(rows, wanted, level, default)
    except SettingsError as error:
        raise InvalidSettings(str(error)) from None
