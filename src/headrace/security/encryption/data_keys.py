"""The data keys of a topic: made, wrapped by a master key, unwrapped, wrapped again by a new one, and destroyed."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from headrace.model.data_keys import TopicDataKeys, WrappedKey
from headrace.security.encryption.key_source import COMMAND, FILE, SETTING
from headrace.security.encryption.master_key import KEY_BYTES, KeyNotUnwrapped, MasterKeys

_SOURCES = f"{FILE} ({SETTING} or {COMMAND})"


@dataclass(frozen=True, slots=True)
class UnwrappedKeys:
    """The data keys of a topic that this broker can use."""

    by_version: Mapping[int, bytes]
    current: int | None
    """The version for new batches; None if there is none, or this broker cannot unwrap it."""
    problem: str = ""
    """Why a key is missing, and what to do about it; empty if none is."""
    is_shredded: bool = False
    """Whether there is no key because all were destroyed."""
    destroyed: int = 0
    """The highest version that shredding has destroyed; 0 if the topic was never shredded."""

    def __repr__(self) -> str:
        return f"<UnwrappedKeys {sorted(self.by_version)}>"


def add_version(before: TopicDataKeys | None, topic_id: UUID, master: MasterKeys, now_ms: int) -> TopicDataKeys:
    """The keys of a topic with a new random one, which new batches use."""
    version = 1 if before is None else before.last_version + 1
    wrapped = master.current.wrap(os.urandom(KEY_BYTES), _context(topic_id, version))
    key = WrappedKey(version, wrapped, master.current.key_id, now_ms)
    if before is None:
        return TopicDataKeys((key,), version)
    return replace(before, versions=(*before.versions, key), last_version=version)


def shred(before: TopicDataKeys, now_ms: int) -> TopicDataKeys:
    """The record without any key: the versions are not assigned again."""
    return replace(before, versions=(), shredded_ms=now_ms)


def rewrap(keys: TopicDataKeys, topic_id: UUID, master: MasterKeys) -> TopicDataKeys | None:
    """The same keys wrapped by the current master key; None if they are already, or cannot be unwrapped here."""
    versions = tuple(_rewrapped(key, topic_id, master) for key in keys.versions)
    return None if versions == keys.versions else replace(keys, versions=versions)


def _rewrapped(key: WrappedKey, topic_id: UUID, master: MasterKeys) -> WrappedKey:
    former = master.get(key.master_key_id)
    if former is None or former is master.current:
        return key
    context = _context(topic_id, key.version)
    try:
        plain = former.unwrap(key.wrapped, context)
    except KeyNotUnwrapped:
        return key
    return replace(key, wrapped=master.current.wrap(plain, context), master_key_id=master.current.key_id)


def unwrap(keys: TopicDataKeys | None, topic_id: UUID, master: MasterKeys | None) -> UnwrappedKeys:
    """The data keys that these master keys unwrap."""
    if keys is None:
        advice = f"set {_SOURCES} on a broker and restart it" if master is None else "it is being made: try again"
        return UnwrappedKeys({}, None, f"has no data key yet: {advice}")
    if not keys.versions:
        problem = "was shredded: its data keys were destroyed, and what was written with them cannot be read any more"
        return UnwrappedKeys({}, None, problem, is_shredded=True, destroyed=keys.last_version)
    found: dict[int, bytes] = {}
    problem = ""
    destroyed = 0
    if keys.shredded_ms is not None:
        destroyed = keys.versions[0].version - 1
        problem = "was shredded, and what was written before that cannot be read any more"
    for key in keys.versions:
        known = None if master is None else master.get(key.master_key_id)
        if known is None:
            have = "none" if master is None else master.ids
            problem = (
                f"is encrypted under the master key {key.master_key_id}, and this broker has {have}: set {_SOURCES} to "
                "that key and restart the broker"
            )
            continue
        try:
            found[key.version] = known.unwrap(key.wrapped, _context(topic_id, key.version))
        except KeyNotUnwrapped:
            problem = f"has a data key (version {key.version}) that was changed in the metadata store: restore it"
    newest = keys.versions[-1].version
    return UnwrappedKeys(found, newest if newest in found else None, problem, destroyed=destroyed)


def _context(topic_id: UUID, version: int) -> bytes:
    """Binds a wrapped key to its topic and version, so that records of the store cannot be exchanged."""
    return b"headrace data key\0" + topic_id.bytes + version.to_bytes(4)
