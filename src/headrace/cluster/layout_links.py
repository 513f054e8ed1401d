"""The metadata store's schema of links and mirror topics, as JSON.

    /links/<name>                a link to another cluster
    /mirrors/<topic id>          the record of a mirror topic. Written in the transaction that creates the topic,
                                 deleted in the one that deletes it
    /copied/acls/<digest>        which link has brought the ACL under the rest of the key. Written and deleted with it
    /copied/users/<name>         the same for a user
    /copied/quotas/<digest>      the same for the quotas of an entity, with their values

They need feature level `LINKS_LEVEL`: older brokers would let producers write to mirror topics.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar
from uuid import UUID

import msgspec

from headrace.cluster.store import Change
from headrace.model.errors import StartupError
from headrace.model.links import Copied, Link, Mirror

LINKS = "/links/"
MIRRORS = "/mirrors/"
COPIED = "/copied"

_K = TypeVar("_K")
_T = TypeVar("_T")

_encode = msgspec.json.Encoder(order="deterministic").encode
_link = msgspec.json.Decoder(Link)
_mirror = msgspec.json.Decoder(Mirror)
_copied = msgspec.json.Decoder(Copied)


def link_key(name: str) -> str:
    return LINKS + name


def mirror_key(topic_id: UUID) -> str:
    return MIRRORS + str(topic_id)


def copied_key(key: str) -> str:
    """The key of the note about what is stored under `key`."""
    return COPIED + key


def encode_copied(copied: Copied) -> bytes:
    return _encode(copied)


def encode_link(link: Link) -> bytes:
    return _encode(link)


def encode_mirror(mirror: Mirror) -> bytes:
    return _encode(mirror)


def apply_links(links: Mapping[str, Link], changes: Iterable[Change]) -> Mapping[str, Link]:
    """The links with these changes, whose keys begin with `LINKS`; the same object without changes."""
    changed = {change.key[len(LINKS) :]: _decode(change, _link) for change in changes}
    return _merged(links, changed) if changed else links


def apply_mirrors(mirrors: Mapping[UUID, Mirror], changes: Iterable[Change]) -> Mapping[UUID, Mirror]:
    """The mirror topics with these changes, whose keys begin with `MIRRORS`; the same object without changes."""
    changed = {UUID(change.key[len(MIRRORS) :]): _decode(change, _mirror) for change in changes}
    return _merged(mirrors, changed) if changed else mirrors


def apply_copied(copied: Mapping[str, Copied], changes: Iterable[Change]) -> Mapping[str, Copied]:
    """The notes with these changes, whose keys begin with `COPIED`; the same object without changes."""
    changed = {change.key[len(COPIED) :]: _decode(change, _copied) for change in changes}
    return _merged(copied, changed) if changed else copied


def _merged(before: Mapping[_K, _T], changed: Mapping[_K, _T | None]) -> Mapping[_K, _T]:
    return {key: value for key, value in {**before, **changed}.items() if value is not None}


def _decode(change: Change, decoder: msgspec.json.Decoder[_T]) -> _T | None:
    if change.value is None:
        return None
    try:
        return decoder.decode(change.value)
    except msgspec.DecodeError as error:
        raise StartupError(
            f"the metadata under {change.key} cannot be decoded; was it edited by hand? {error}"
        ) from None
