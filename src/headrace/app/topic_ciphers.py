"""The ciphers of this broker's logs, from the settings and data keys of their topics in the image."""

import logging
from uuid import UUID

from headrace.config.topic import TopicSettings
from headrace.model.data_keys import TopicDataKeys
from headrace.model.image import ClusterImage, TopicImage
from headrace.security.encryption.data_keys import UnwrappedKeys, unwrap
from headrace.security.encryption.master_key import MasterKeys
from headrace.storage.encryption import LogCipher
from headrace.storage.log import Log
from headrace.storage.recent_batches import RecentBatches

_log = logging.getLogger(__name__)


class TopicCiphers:
    """Sets the cipher of each log. A broker without the right master key starts, and serves every other topic."""

    def __init__(self, master: MasterKeys | None, cache_bytes: int = 0) -> None:
        """`cache_bytes`: the memory for the newest batches of all logs."""
        self._master = master
        self._recent = RecentBatches(cache_bytes)
        self._unwrapped: dict[UUID, tuple[TopicDataKeys | None, UnwrappedKeys]] = {}
        self._noted: dict[UUID, str] = {}
        self._locked: dict[UUID, str] = {}
        """The names of topics whose data keys cannot be unwrapped."""

    def apply(self, image: ClusterImage, topic: TopicImage, settings: TopicSettings, index: int, log: Log) -> None:
        """Set the log's cipher. It stays the same object while keys and settings do; a topic that is not encrypted and
        never was has none."""
        stored = image.data_keys.get(topic.topic_id)
        value = settings.encryption_at_rest
        if stored is None and value == "false":
            self._set(log, None)
            return
        keys = self._keys(topic, stored)
        encrypts = value != "false"
        if log.cipher is None or log.cipher.keys is not keys or log.cipher.encrypts != encrypts:
            cipher = LogCipher(keys, topic.name, topic.topic_id, index, encrypts=encrypts, recent=self._recent)
            self._set(log, cipher)

    @staticmethod
    def _set(log: Log, cipher: LogCipher | None) -> None:
        if log.cipher is not None:
            log.cipher.drop_recent()
        log.cipher = cipher

    def locked_topics(self) -> list[str]:
        """The topics of this broker that can neither be read nor written, for want of the master key of their keys."""
        return sorted(self._locked.values())

    def forget(self, topic_id: UUID) -> None:
        """The topic was deleted, or moved to other brokers."""
        self._unwrapped.pop(topic_id, None)
        self._noted.pop(topic_id, None)
        self._locked.pop(topic_id, None)

    def _keys(self, topic: TopicImage, stored: TopicDataKeys | None) -> UnwrappedKeys:
        known = self._unwrapped.get(topic.topic_id)
        if known is not None and known[0] is stored:
            return known[1]
        keys = unwrap(stored, topic.topic_id, self._master)
        if known is not None and known[1] == keys:
            # They were wrapped again by another master key: nothing changes for the logs.
            keys = known[1]
        self._unwrapped[topic.topic_id] = stored, keys
        if stored is not None or self._master is None:
            self._note(topic, keys)
        return keys

    def _note(self, topic: TopicImage, keys: UnwrappedKeys) -> None:
        if keys.problem and keys.current is None and not keys.is_shredded:
            self._locked[topic.topic_id] = topic.name
        else:
            self._locked.pop(topic.topic_id, None)
        if keys.problem and self._noted.get(topic.topic_id) != keys.problem:
            level = logging.WARNING if keys.is_shredded or keys.current is not None else logging.ERROR
            _log.log(level, "the topic %s %s", topic.name, keys.problem)
        self._noted[topic.topic_id] = keys.problem
