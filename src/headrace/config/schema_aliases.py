"""The names that Confluent's and Redpanda's brokers have for the settings of schema validation.

Any of them can be set on a topic. What is stored, and shown when all settings are listed, are our names; an alias is
shown when it is asked for by its name.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.config.settings import Kind, Setting
from headrace.model.errors import SettingsError

VALIDATIONS = ("off", "id", "payload")
STRATEGIES = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")

_JAVA_PACKAGE = "io.confluent.kafka.serializers.subject."
_VALIDATION_OF = {"true": "id", "false": "off"}


class SettingAlias(NamedTuple):
    """Another name of a topic setting."""

    name: str
    setting: str
    is_flag: bool
    """Whether its value is true or false, and not the name of a strategy."""

    @property
    def row(self) -> Setting:
        """How it is described."""
        doc = f"Another name of {self.setting}."
        return Setting(self.name, Kind.BOOLEAN if self.is_flag else Kind.STRING, False if self.is_flag else "", doc)

    def shown(self, value: str) -> str:
        """The value of the setting, as this alias has it."""
        if self.is_flag:
            return "false" if value == "off" else "true"
        return f"{_JAVA_PACKAGE}{value}" if self.name.startswith("confluent.") else value


ALIASES: Mapping[str, SettingAlias] = {
    alias.name: alias
    for part in ("key", "value")
    for alias in (
        SettingAlias(f"confluent.{part}.schema.validation", f"{part}.schema.validation", True),
        SettingAlias(f"redpanda.{part}.schema.id.validation", f"{part}.schema.validation", True),
        SettingAlias(f"confluent.{part}.subject.name.strategy", f"{part}.subject.name.strategy", False),
        SettingAlias(f"redpanda.{part}.subject.name.strategy", f"{part}.subject.name.strategy", False),
    )
}
_STRATEGY_SETTINGS = frozenset(alias.setting for alias in ALIASES.values() if not alias.is_flag)


def own_name(name: str) -> str:
    """Our name of a setting."""
    alias = ALIASES.get(name)
    return name if alias is None else alias.setting


def own_value(name: str, value: str) -> str:
    """The value that our name of a setting has; `SettingsError` if an alias has no such value."""
    alias = ALIASES.get(name)
    if alias is not None and alias.is_flag:
        if (found := _VALIDATION_OF.get(value.strip().lower())) is None:
            raise SettingsError(f"{name}={value} is not allowed: use true or false, or {alias.setting}")
        return found
    return value.strip().removeprefix(_JAVA_PACKAGE) if own_name(name) in _STRATEGY_SETTINGS else value


def own_settings(given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Settings by our names; `SettingsError` if two names of one setting contradict each other."""
    names: dict[str, str] = {}
    settings: dict[str, str] = {}
    for name, text in given:
        own, value = own_name(name), own_value(name, text)
        if settings.setdefault(own, value) != value:
            raise SettingsError(f"{names[own]} and {name} contradict each other: set one of them")
        names.setdefault(own, name)
    return settings
