"""A row of a table of settings: everything but the default, which is in the class with the typed values."""

from typing import NamedTuple

from headrace.config.settings import Kind
from headrace.model.features import FIRST_LEVEL


class SettingRow(NamedTuple):
    """A `Setting` without its default."""

    name: str
    kind: Kind
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    dynamic: bool = False
    level: int = FIRST_LEVEL
