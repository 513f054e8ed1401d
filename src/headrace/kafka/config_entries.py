"""Settings as DescribeConfigs shows them: the effective value, its source, and the synonyms it overrides.

The sources of a value, in order of precedence:

    1  the topic, or the group
    2  this broker, changed while running
    3  all brokers, changed while running
    4  this broker's flags, environment or config file
    5  the default
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from headrace.cluster.metadata import Metadata
from headrace.config.broker import BROKER_SETTINGS
from headrace.config.client_metrics import CLIENT_METRICS_SETTINGS
from headrace.config.group import GROUP_SETTINGS
from headrace.config.schema_aliases import ALIASES
from headrace.config.settings import Kind, Setting
from headrace.config.topic import rows_for
from headrace.kafka.broker_loggers import logger_level, logger_rows
from headrace.kafka.shown_names import shown_names
from headrace.model.image import TopicImage
from headrace.model.links import Mirror
from headrace.model.provenance import (
    MIRROR_LINK,
    MIRROR_ORIGINS,
    MIRROR_PROMOTION,
    MIRROR_SOURCE,
    MIRROR_STATE,
    Promotion,
)

_PROVENANCE = {
    name: Setting(name, Kind.STRING, "", text)
    for name, text in (
        (MIRROR_SOURCE, "The cluster and the topic that this topic is copied from, or was before it was taken over."),
        (MIRROR_STATE, "The state of the mirror topic; stopped if it was taken over, and is like any other topic now."),
        (MIRROR_LINK, "The name and the id of the link that fills this topic, or did."),
        (MIRROR_ORIGINS, "The ids of all clusters whose records this topic may have besides those written here."),
        (
            MIRROR_PROMOTION,
            "The cluster and topic id that it was copied from, and its first own leader epoch.",
        ),
    )
}


class ConfigResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STARTUP = 4
    DEFAULT = 5
    LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    """One source that sets a value, and the name it uses."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    setting: Setting
    read_only: bool
    synonyms: tuple[Synonym, ...]
    """Every source that sets the value, in order of precedence; never empty."""

    @property
    def value(self) -> str | None:
        return self.synonyms[0].value

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source

    @property
    def is_sensitive(self) -> bool:
        return self.setting.kind is Kind.PASSWORD


def topic_entries(metadata: Metadata, topic: TopicImage) -> Iterator[ConfigEntry]:
    """Every setting of a topic; a mirror topic, or one that was, has read-only ones that say where its records are
    from."""
    yield from _entries(metadata, rows_for(topic.settings).values(), topic.settings, ConfigSource.TOPIC)
    mirror = metadata.image.mirrors.get(topic.topic_id)
    for name, value in () if mirror is None else _provenance(mirror):
        yield ConfigEntry(_PROVENANCE[name], True, (Synonym(name, value, ConfigSource.TOPIC),))


def _provenance(mirror: Mirror) -> Iterator[tuple[str, str]]:
    yield MIRROR_SOURCE, f"{mirror.source_cluster_id}/{mirror.source_topic}"
    yield MIRROR_STATE, mirror.state.value
    yield MIRROR_LINK, mirror.link if mirror.link_id is None else f"{mirror.link} {mirror.link_id}"
    yield MIRROR_ORIGINS, ",".join(mirror.origins)
    if not mirror.is_read_only:
        promotion = Promotion(mirror.source_cluster_id, mirror.source_topic_id, mirror.promoted_epoch)
        yield MIRROR_PROMOTION, promotion.text()


def alias_entries(metadata: Metadata, topic: TopicImage, names: Iterable[str]) -> Iterator[ConfigEntry]:
    """Other names of a topic's settings, for clients that ask for these: `config/schema_aliases.py`."""
    aliases = [ALIASES[name] for name in names if name in ALIASES]
    by_name = {entry.setting.name: entry for entry in topic_entries(metadata, topic)} if aliases else {}
    for alias in aliases:
        entry = by_name[alias.setting]
        yield ConfigEntry(alias.row, False, (Synonym(alias.name, alias.shown(entry.value or ""), entry.source),))


def group_entries(metadata: Metadata, group_id: str) -> Iterator[ConfigEntry]:
    """Every setting of a group."""
    return _entries(
        metadata, GROUP_SETTINGS.values(), metadata.image.settings_by_group.get(group_id, {}), ConfigSource.GROUP
    )


def client_metrics_entries(metadata: Metadata, name: str) -> Iterator[ConfigEntry]:
    """Every setting of a client metrics subscription; those of one that does not exist are the defaults."""
    texts = metadata.image.client_metrics.get(name, {})
    return _entries(metadata, CLIENT_METRICS_SETTINGS.values(), texts, ConfigSource.CLIENT_METRICS)


def logger_entries() -> Iterator[ConfigEntry]:
    """The level of every logger of this broker."""
    for row in logger_rows().values():
        yield ConfigEntry(row, False, (Synonym(row.name, logger_level(row.name), ConfigSource.LOGGER),))


def _entries(
    metadata: Metadata, rows: Iterable[Setting], overrides: Mapping[str, str], source: ConfigSource
) -> Iterator[ConfigEntry]:
    for row in rows:
        synonyms: list[Synonym] = []
        if row.name in overrides:
            synonyms.append(Synonym(row.name, _shown(row, overrides[row.name]), source))
        if row.broker_name is not None:
            synonyms.extend(_broker_synonyms(metadata, BROKER_SETTINGS[row.broker_name]))
        else:
            synonyms.append(Synonym(row.name, row.render(row.default), ConfigSource.DEFAULT))
        yield ConfigEntry(row, False, tuple(synonyms))


def broker_entries(metadata: Metadata, http_listeners: str) -> Iterator[ConfigEntry]:
    """Every setting of this broker; one that Kafka has in another form is shown in that."""
    shown = list(shown_names(metadata, http_listeners))
    names = {row.name for row, _ in shown}
    for row in BROKER_SETTINGS.values():
        if row.name not in names:
            yield ConfigEntry(row, not row.dynamic, tuple(_broker_synonyms(metadata, row)))
    for row, value in shown:
        yield ConfigEntry(row, True, (Synonym(row.name, value, ConfigSource.STARTUP),))


def all_brokers_entries(metadata: Metadata) -> Iterator[ConfigEntry]:
    """The settings that were changed for all brokers while running."""
    for name, text in metadata.image.broker_settings.items():
        row = BROKER_SETTINGS[name]
        yield ConfigEntry(row, False, (Synonym(name, _shown(row, text), ConfigSource.ALL_BROKERS),))


def _broker_synonyms(metadata: Metadata, row: Setting) -> Iterator[Synonym]:
    image, boot = metadata.image, metadata.boot_settings
    for source, texts in (
        (ConfigSource.BROKER, image.settings_by_broker.get(metadata.broker_id, {})),
        (ConfigSource.ALL_BROKERS, image.broker_settings),
    ):
        if row.name in texts:
            yield Synonym(row.name, _shown(row, texts[row.name]), source)
    if row.name in boot.given:
        yield Synonym(row.name, _shown(row, row.render(boot.value(row.name))), ConfigSource.STARTUP)
    yield Synonym(row.name, _shown(row, row.render(row.default)), ConfigSource.DEFAULT)


def _shown(row: Setting, text: str) -> str | None:
    """The text of a value, unless it is a secret."""
    return None if row.kind is Kind.PASSWORD else text
