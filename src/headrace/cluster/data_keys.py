"""Changes of topics' data keys, as writes of metadata transactions.

A topic's key is made in the transaction that creates the topic with `encryption.at.rest=true` or sets that, destroyed
in the one that sets `shredded`, and deleted with the topic. Topics that are encrypted by a broker's default get theirs
from `KeyUpkeep`, which also wraps keys again when the master key has changed.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from headrace.cluster import layout
from headrace.cluster.layout_keys import data_keys_key, encode_data_keys
from headrace.cluster.store import Put
from headrace.model.errors import HeadraceError, InvalidSettings
from headrace.model.features import needed
from headrace.model.image import ClusterImage, TopicImage
from headrace.security.encryption.data_keys import add_version, rewrap, shred
from headrace.security.encryption.key_source import COMMAND, FILE, SETTING
from headrace.security.encryption.master_key import MasterKeys

if TYPE_CHECKING:
    from headrace.cluster.metadata import Metadata

AT_REST = "encryption.at.rest"
LEVEL = 2
"""The first feature level at which data keys are stored."""

_log = logging.getLogger(__name__)


class KeyChange(NamedTuple):
    """A change of a topic's data keys, to be committed while the key of the store is unchanged."""

    key: str
    write: Put


class DataKeyMaker:
    """Decides about data keys with the master keys of this broker."""

    def __init__(self, master: MasterKeys | None, wall_ms: Callable[[], int]) -> None:
        self.master = master
        self._wall_ms = wall_ms

    def for_setting(
        self, image: ClusterImage, topic: TopicImage, value: str, *, is_requested: bool
    ) -> KeyChange | None:
        """The change of a topic's keys when `encryption.at.rest` has this value now; None if there is none.

        `is_requested`: the value is being set for this topic, so that `InvalidSettings` says why it cannot be.
        """
        before = image.data_keys.get(topic.topic_id)
        if value == "shredded":
            if before is None and is_requested:
                raise InvalidSettings(f"the topic {topic.name} was never encrypted, so it has no data key to destroy")
            if before is None or not before.versions:
                return None
            return _change(topic.topic_id, encode_data_keys(shred(before, self._wall_ms())))
        if value != "true" or (before is not None and before.versions):
            return None
        problem = self._why_no_key(image.feature_level)
        if problem is not None:
            if is_requested:
                raise InvalidSettings(problem)
            return None
        assert self.master is not None
        keys = add_version(before, topic.topic_id, self.master, self._wall_ms())
        return _change(topic.topic_id, encode_data_keys(keys))

    def rewrapped(self, image: ClusterImage, topic_id: UUID) -> KeyChange | None:
        """The keys of a topic wrapped by the current master key; None if they are, or this broker cannot do it."""
        before = image.data_keys.get(topic_id)
        after = None if before is None or self.master is None else rewrap(before, topic_id, self.master)
        return None if after is None else _change(topic_id, encode_data_keys(after))

    def _why_no_key(self, level: int) -> str | None:
        if level < LEVEL:
            return needed(AT_REST, LEVEL, level)
        if self.master is None:
            return f"{AT_REST}=true needs a master key on this broker: set {FILE}, {SETTING} or {COMMAND}"
        return None


def _change(topic_id: UUID, value: bytes) -> KeyChange:
    key = data_keys_key(topic_id)
    return KeyChange(key, Put(key, value))


class KeyUpkeep:
    """Makes missing data keys, and wraps those of a former master key again, when this broker starts or is changed."""

    def __init__(self, metadata: "Metadata", maker: DataKeyMaker) -> None:
        self._metadata = metadata
        self._maker = maker

    def is_due(self) -> bool:
        """Whether `run` has anything to do. Without a master key it never has."""
        if self._maker.master is None:
            return False
        image = self._metadata.image
        return any(self._wanted(image, topic) is not None for topic in image.topics.values())

    async def run(self) -> None:
        """Change the keys of every topic that needs it. Failures are logged: the next run retries them."""
        for topic in tuple(self._metadata.image.topics.values()):
            if self._wanted(self._metadata.image, topic) is None:
                continue
            try:
                await self._metadata.decide(lambda name=topic.name: self._attempt(name))  # type: ignore[misc]
            except HeadraceError as error:
                _log.warning("the data keys of the topic %s cannot be changed for now: %s", topic.name, error)

    async def _attempt(self, name: str) -> None:
        metadata = self._metadata
        image = metadata.image
        topic = next((topic for topic in image.topics.values() if topic.name == name), None)
        change = None if topic is None else self._wanted(image, topic)
        if topic is None or change is None:
            return
        compares = [metadata.unchanged(layout.topic_key(topic.name)), metadata.unchanged(change.key)]
        await metadata.commit(compares, [change.write])
        _log.info("the data keys of the topic %s are under the current master key now", name)

    def _wanted(self, image: ClusterImage, topic: TopicImage) -> KeyChange | None:
        value = self._metadata.topic_settings(topic).encryption_at_rest
        if value == "true":
            made = self._maker.for_setting(image, topic, value, is_requested=False)
            if made is not None:
                return made
        return self._maker.rewrapped(image, topic.topic_id)
