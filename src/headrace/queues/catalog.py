"""The catalog of queues: topics of the cluster's metadata with settings `queue.*`.

Any broker creates, changes and deletes them. Attributes that only the SQS API has are JSON in `queue.attributes`.
"""

import json
from collections.abc import Mapping
from uuid import UUID

from headrace.cluster.metadata import Metadata
from headrace.config.queue import PREFIX, QueueSettings, queue_settings
from headrace.model.errors import (
    InvalidSettings,
    QueueElsewhere,
    QueueExists,
    QueueUnavailable,
    SettingsError,
    TopicExists,
    UnknownQueue,
    UnknownTopic,
)
from headrace.model.ids import TopicName
from headrace.model.image import INTERNAL_TOPICS, TopicImage
from headrace.model.links import Mirror
from headrace.queues.api import QueueEdit, QueueInfo

_TYPE = "queue.type"
_ATTRIBUTES = "queue.attributes"
_DEAD_LETTER = "queue.dead.letter"
_ATTRIBUTES_MAX_BYTES = 256 * 1024
_TOPIC_SETTINGS = {
    # Messages are deleted when they are acked, or by queue.retention.ms, and not by the age of a segment.
    "retention.ms": "-1",
    "segment.bytes": str(64 * 1024 * 1024),
    # A message of a MiB, with its headers.
    "max.message.bytes": str(2 * 1024 * 1024),
}


_MIRRORED = (
    " here: its home is another cluster, {cluster}, where it is {source}; the link {link} mirrors it here. "
    "Send and receive there; headrace link promote {name} moves its home here, and headrace link failover {name} does "
    "if that cluster is lost"
)


class QueueCatalog:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._parsed: dict[UUID, tuple[Mapping[str, str], QueueInfo]] = {}
        self._queues: tuple[Mapping[TopicName, TopicImage], list[TopicImage]] = {}, []
        """The queues by name, with the topics that they were found in: there may be thousands of others."""
        self._found: dict[str, TopicImage] = {}
        """The queues of `_found_in` that were asked for, by name."""
        self._found_in: Mapping[TopicName, TopicImage] = {}

    # -- reading

    def find(self, name: str) -> QueueInfo:
        return self.info(self.topic(name))

    def topic(self, name: str) -> TopicImage:
        topics = self._metadata.image.topics
        if topics is not self._found_in:
            self._found_in, self._found = topics, {}
        known = self._found.get(name)
        if known is not None:
            return known
        topic = topics.get(TopicName(name))
        if topic is None or not is_queue(topic):
            mirror = self._metadata.image.read_only_mirror(name)
            if mirror is not None and mirror.queue:
                raise QueueElsewhere(f"there is no queue {name}{_mirrored(name, mirror)}")
            raise UnknownQueue(f"there is no queue {name}")
        self._found[name] = topic
        return topic

    def all(self, prefix: str = "") -> list[QueueInfo]:
        topics = self._metadata.image.topics
        if self._queues[0] is not topics:
            found = sorted((each for each in topics.values() if is_queue(each)), key=lambda each: each.name)
            self._queues = topics, found
        return [self.info(each) for each in self._queues[1] if each.name.startswith(prefix)]

    def info(self, topic: TopicImage) -> QueueInfo:
        known = self._parsed.get(topic.topic_id)
        if known is not None and known[0] is topic.settings:
            return known[1]
        settings = queue_settings({name: text for name, text in topic.settings.items() if name.startswith(PREFIX)})
        info = QueueInfo(topic.name, topic.topic_id.hex, settings, _attributes(settings))
        if len(self._parsed) > 2 * len(self._metadata.image.topics) + 100:
            self._parsed.clear()
        self._parsed[topic.topic_id] = (topic.settings, info)
        return info

    # -- changing

    async def create(self, name: str, edit: QueueEdit) -> QueueInfo:
        if name in INTERNAL_TOPICS:
            raise InvalidSettings(f"{name} is an internal topic and cannot be a queue: choose another name")
        wanted = _edited({_TYPE: "standard"}, edit)
        _check_dead_letter(name, wanted)
        try:
            of_queue = queue_settings(wanted)
        except SettingsError as error:
            raise InvalidSettings(str(error)) from None
        try:
            topic = await self._metadata.create_topic(name, partitions=1, settings={**_TOPIC_SETTINGS, **wanted})
        except TopicExists:
            return self._existing(name, of_queue, edit)
        return self.info(topic)

    def _existing(self, name: str, wanted: QueueSettings, edit: QueueEdit) -> QueueInfo:
        """The existing queue, if it has the settings that were given."""
        topic = self._metadata.image.topics.get(TopicName(name))
        if topic is None or not is_queue(topic):
            mirror = self._metadata.image.read_only_mirror(name)
            if mirror is not None and mirror.queue:
                raise QueueExists(f"the queue {name} exists, but not{_mirrored(name, mirror)}")
            raise QueueExists(f"{name} is a topic that is not a queue: choose another name")
        info = self.info(topic)
        names = {"type", *(text.replace(".", "_") for text, value in edit.settings.items() if value is not None)}
        for field in sorted(names):
            if getattr(info.settings, field) != getattr(wanted, field):
                raise QueueExists(f"the queue {name} exists with another {field.replace('_', '.')}")
        return info

    async def delete(self, name: str) -> None:
        self.topic(name)
        try:
            await self._metadata.delete_topic(name)
        except UnknownTopic:
            raise UnknownQueue(f"there is no queue {name}") from None

    async def alter(self, name: str, edit: QueueEdit) -> None:
        self.topic(name)

        def change(before: Mapping[str, str]) -> Mapping[str, str]:
            _check_expected(name, before, edit)
            after = _edited(before, edit)
            if after.get(_TYPE) != before.get(_TYPE):
                raise InvalidSettings("the type of a queue cannot be changed: create another queue")
            _check_dead_letter(name, after)
            return after

        try:
            await self._metadata.alter_topic_settings(name, change)
        except UnknownTopic:
            raise UnknownQueue(f"there is no queue {name}") from None


def _mirrored(name: str, mirror: Mirror) -> str:
    """Where the home of a mirrored queue is, and how to move it."""
    return _MIRRORED.format(name=name, cluster=mirror.source_cluster_id, source=mirror.source_topic, link=mirror.link)


def is_queue(topic: TopicImage) -> bool:
    """Whether messages can be sent to it. An internal topic never is one, whatever its settings."""
    return topic.settings.get(_TYPE, "none") != "none" and not topic.is_internal


def _check_dead_letter(name: str, settings: Mapping[str, str]) -> None:
    if settings.get(_DEAD_LETTER) == name:
        raise InvalidSettings(f"{name} cannot be its own dead-letter queue: its messages would be moved for ever")


def _check_expected(name: str, before: Mapping[str, str], edit: QueueEdit) -> None:
    attributes = _decoded(before.get(_ATTRIBUTES, "")) if edit.expected else {}
    if any(attributes.get(key) != value for key, value in edit.expected.items()):
        raise QueueUnavailable(f"the attributes of {name} were changed at the same time: try again")


def _edited(before: Mapping[str, str], edit: QueueEdit) -> dict[str, str]:
    after = dict(before)
    for name, text in edit.settings.items():
        if text is None:
            after.pop(PREFIX + name, None)
        else:
            after[PREFIX + name] = text
    if edit.attributes:
        attributes = _decoded(before.get(_ATTRIBUTES, ""))
        for name, text in edit.attributes.items():
            if text is None:
                attributes.pop(name, None)
            else:
                attributes[name] = text
        encoded = json.dumps(attributes, separators=(",", ":"), sort_keys=True)
        if len(encoded) > _ATTRIBUTES_MAX_BYTES:
            raise InvalidSettings(f"the attributes of a queue have at most {_ATTRIBUTES_MAX_BYTES} bytes together")
        after[_ATTRIBUTES] = encoded
    return after


def _attributes(settings: QueueSettings) -> Mapping[str, str]:
    return _decoded(settings.attributes)


def _decoded(text: str) -> dict[str, str]:
    """Empty for invalid text: any Kafka tool may have written it."""
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(name, str) and isinstance(value, str)}
