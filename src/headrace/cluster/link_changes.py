"""Changes to links and mirror topics: each is a transaction of the metadata store, in force here when it returns.

Any broker may make them: each is a compare-and-set on the records it was decided from.

A promotion has three steps, each of which can be repeated, so that a topic may have any number of partitions and a
crash in between is harmless: the record becomes PROMOTING and names the epoch of the first local writes, and leaders
stop copying; the leader epochs of all partitions are raised to it, and the mirror of a queue becomes a queue; the
record becomes STOPPED. Only then producers may write. Leader epochs never fall, and a topic that is PROMOTING gets no
partitions, so what the second step has done holds.
"""

import logging
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from uuid import UUID

from headrace.cluster import layout
from headrace.cluster.layout_links import encode_link, encode_mirror, link_key, mirror_key
from headrace.cluster.metadata import Metadata
from headrace.cluster.store import DeleteKey, Put
from headrace.config.link_rows import LINK_PASSWORD_PREFIX
from headrace.config.queue import PREFIX as QUEUE_PREFIX
from headrace.model.errors import (
    InvalidLink,
    InvalidPartitions,
    InvalidRegularExpression,
    InvalidSettings,
    LinkExists,
    NotMirrored,
    PolicyViolation,
    UnknownLink,
    UnsupportedFeature,
)
from headrace.model.features import LINKS_LEVEL, needed
from headrace.model.ids import LeaderEpoch, TopicId
from headrace.model.image import PartitionState, TopicImage
from headrace.model.links import (
    EPOCH_ROOM,
    MAX_BOOTSTRAP,
    MAX_LINKS,
    MAX_MIRRORS,
    MAX_NAME_CHARS,
    MAX_PATTERNS,
    MAX_TEXT_CHARS,
    Link,
    Mirror,
    MirrorState,
)
from headrace.model.patterns import topic_pattern

log = logging.getLogger(__name__)

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MAX_TOPIC_CHARS = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]*")
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^:\s\[\]]+):[0-9]{1,5}")
_PASSWORD_VARIABLE = re.compile(LINK_PASSWORD_PREFIX + "[A-Za-z0-9_]+")
_PORT_MAX = 65_535
_FILE_NAME = re.compile(r"(?!\.\.?$)[^/\\\x00]+")

LinkEdit = Callable[[Link], Link]
"""Maps a link to its changed form. Must be pure: it runs again after a conflict."""
MirrorEdit = Callable[[Mirror], Mirror]


class LinkChanges:
    """Changes links and mirror topics, through this broker's metadata."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    async def create(self, link: Link) -> None:
        """Store a new link. Raises `InvalidLink`, `LinkExists` or `PolicyViolation`."""

        async def attempt() -> None:
            image = self._metadata.image
            self._check_level()
            check_link(link)
            if link.name in image.links:
                raise LinkExists(f"the link {link.name} exists already: delete it first, or choose another name")
            if len(image.links) >= MAX_LINKS:
                raise PolicyViolation(f"a cluster has at most {MAX_LINKS} links: delete one first")
            await self._put_link(link)

        await self._metadata.decide(attempt)

    async def alter(self, name: str, edit: LinkEdit) -> Link:
        """Change a link; returns it as it is then. Raises `UnknownLink` or `InvalidLink`."""

        async def attempt() -> Link:
            before = self._link(name)
            link = edit(before)
            check_link(link)
            if link != before:
                await self._put_link(link)
            return link

        return await self._metadata.decide(attempt)

    async def delete(self, name: str) -> None:
        """Remove a link without mirror topics in use; the records of promoted topics stay."""

        async def attempt() -> None:
            image = self._metadata.image
            self._link(name)
            held = [mirror for mirror in image.mirrors.values() if mirror.link == name and mirror.is_read_only]
            if held:
                topic = min(image.topic_names.get(mirror.topic_id, "") for mirror in held)
                many = "a mirror topic" if len(held) == 1 else f"{len(held):,} mirror topics, for example"
                raise InvalidLink(
                    f"the link {name} has {many} {topic}. Make them writable with headrace link failover; or, if they "
                    f"are not needed, pause the link (headrace link pause {name}), since it creates them again "
                    f"otherwise, and delete them. Then delete the link"
                )
            key = link_key(name)
            # A mirror topic of it that is created at the same time compares the link, too.
            await self._metadata.commit([self._metadata.unchanged(key)], [DeleteKey(key)])

        await self._metadata.decide(attempt)

    async def create_mirror(
        self, topic: str, mirror: Mirror, partitions: int, settings: Mapping[str, str]
    ) -> TopicImage:
        """Create a mirror topic and its record in one transaction, so that it is never writable.

        `mirror` has no topic id yet. Raises as `Metadata.create_topic` does, and `UnknownLink`.
        """

        def record(created: TopicImage) -> tuple[list[str], list[Put]]:
            image = self._metadata.image
            self._check_level()
            self._link(mirror.link)
            if len(image.mirrors) >= MAX_MIRRORS:
                raise PolicyViolation(f"a cluster has at most {MAX_MIRRORS} mirror topics")
            key = mirror_key(created.topic_id)
            value = encode_mirror(replace(mirror, topic_id=created.topic_id))
            return [key, link_key(mirror.link)], [Put(key, value)]

        return await self._metadata.create_topic(
            topic, partitions=partitions, settings=settings, more=record, has_queue=bool(mirror.queue)
        )

    async def change_mirror(self, topic_id: UUID, edit: MirrorEdit, *unchanged: str) -> Mirror:
        """Change the record of a mirror topic that is not promoted, if the keys `unchanged` are as they are known here;
        returns it as it is then. Raises `NotMirrored`."""

        async def attempt() -> Mirror:
            before = self._mirror(topic_id)
            mirror = edit(before)
            if mirror != before:
                await self._put_mirror(mirror, *unchanged)
            return mirror

        return await self._metadata.decide(attempt)

    async def promote(
        self,
        topic_id: UUID,
        log_epoch: int,
        now_ms: int,
        reason: str = "",
        took_ms: Callable[[], float] | None = None,
    ) -> Mirror:
        """Make a mirror topic a topic like any other: see above. Repeat it after a failure.

        `log_epoch` is the highest leader epoch in the logs of its partitions, as far as is known; `took_ms` returns the
        time since the takeover was asked for, if this broker knows it.
        """

        def begin(mirror: Mirror) -> Mirror:
            if mirror.state is MirrorState.PROMOTING:
                return mirror
            known = [state.leader_epoch for state in self._topic(topic_id).partitions]
            epoch = max(log_epoch, mirror.source_epoch, *known) + EPOCH_ROOM
            return replace(mirror, state=MirrorState.PROMOTING, promoted_epoch=epoch, reason=reason, changed_ms=now_ms)

        def finish(mirror: Mirror) -> Mirror:
            took = now_ms - mirror.changed_ms if took_ms is None else took_ms()
            return replace(
                mirror, state=MirrorState.STOPPED, changed_ms=now_ms, takeover_took_ms=max(1, math.ceil(took))
            )

        promoting = await self.change_mirror(topic_id, begin)
        await self._raise_epochs(TopicId(topic_id), promoting.promoted_epoch)
        await self._make_queue(promoting)
        try:
            return await self.change_mirror(topic_id, finish)
        except NotMirrored:
            # Another broker has repeated it at the same time.
            if (done := self._metadata.image.mirrors.get(topic_id)) is None:
                raise
            return done

    async def _make_queue(self, mirror: Mirror) -> None:
        """Give the mirror of a queue the settings of one. If they are not possible, it is a topic, and writable."""
        if not mirror.queue:
            return
        try:
            name = self._topic(mirror.topic_id).name
            await self._metadata.alter_topic_settings(name, lambda mine: {**mine, **mirror.queue})
        except (InvalidSettings, InvalidPartitions) as error:
            log.error("%s was the mirror of a queue, and cannot become one here: %s", name, error)

    async def reverse(self, topic_id: UUID, wanted: Mirror) -> Mirror:
        """Make a topic that producers write to a mirror, REVERSING at first; repeat it after a failure.

        `wanted` has the link and the new source. It is read-only when this returns: no leader accepts a producer in
        the leader epochs that it has raised.
        """

        async def attempt() -> Mirror:
            self._check_level()
            self._link(wanted.link)
            topic, before = self._topic(topic_id), self._metadata.image.mirrors.get(topic_id)
            if before is not None and before.is_read_only and before.reversed_ms and before.link == wanted.link:
                # Another broker has begun it, and has perhaps completed it already.
                return before
            if before is not None and before.is_read_only:
                raise PolicyViolation(f"{topic.name} is a mirror topic of the link {before.link} already")
            if before is None and len(self._metadata.image.mirrors) >= MAX_MIRRORS:
                raise PolicyViolation(f"a cluster has at most {MAX_MIRRORS} mirror topics")
            epoch = max(state.leader_epoch for state in topic.partitions) + 1
            if epoch >= wanted.source_promoted_epoch:
                raise InvalidLink(
                    f"the leader epochs of {topic.name} have reached those of the other cluster, so their histories "
                    f"cannot be compared: copy what you need of {topic.name}, then delete it so that the link "
                    f"{wanted.link} copies it again"
                )
            made = replace(wanted, topic_id=topic_id, state=MirrorState.REVERSING, reverse_epoch=epoch)
            await self._put_mirror(made, link_key(wanted.link))
            return made

        reversing = await self._metadata.decide(attempt)
        await self._raise_epochs(TopicId(topic_id), reversing.reverse_epoch)
        if reversing.queue:
            # A topic until it is taken over, as every mirror: its record has the settings.
            name = self._topic(topic_id).name
            await self._metadata.alter_topic_settings(name, _without_queue)
        return reversing

    async def _raise_epochs(self, topic_id: TopicId, epoch: int) -> None:
        async def attempt() -> None:
            states = self._topic(topic_id).partitions
            lower = {
                (topic_id, index): _with_epoch(state, epoch)
                for index, state in enumerate(states)
                if state.leader_epoch < epoch
            }
            if lower:
                await self._metadata.change_partitions(lower)

        await self._metadata.decide(attempt)

    async def _put_link(self, link: Link) -> None:
        key = link_key(link.name)
        await self._metadata.commit([self._metadata.unchanged(key)], [Put(key, encode_link(link))])

    async def _put_mirror(self, mirror: Mirror, *unchanged: str) -> None:
        """Store a record whose topic still exists: otherwise nothing would ever delete it."""
        key, topic_key = mirror_key(mirror.topic_id), layout.topic_key(self._topic(mirror.topic_id).name)
        compares = [self._metadata.unchanged(each) for each in (key, topic_key, *unchanged)]
        await self._metadata.commit(compares, [Put(key, encode_mirror(mirror))])

    def _link(self, name: str) -> Link:
        link = self._metadata.image.links.get(name)
        if link is None:
            raise UnknownLink(f"there is no link {name}: headrace link list shows those that there are")
        return link

    def _topic(self, topic_id: UUID) -> TopicImage:
        topic = self._metadata.image.topic_by_id(topic_id)
        if topic is None:
            raise NotMirrored("the mirror topic was deleted")
        return topic

    def _mirror(self, topic_id: UUID) -> Mirror:
        topic = self._topic(topic_id)
        mirror = self._metadata.image.mirrors.get(topic_id)
        if mirror is None:
            raise NotMirrored(f"{topic.name} is no mirror topic")
        if not mirror.is_read_only:
            raise NotMirrored(f"{topic.name} is no mirror topic any more: producers may write to it")
        return mirror

    def _check_level(self) -> None:
        level = self._metadata.image.feature_level
        if level < LINKS_LEVEL:
            raise UnsupportedFeature(needed("a link", LINKS_LEVEL, level))


def check_link(link: Link) -> None:
    """Refuse a link that makes no sense, or whose texts are too long. Raises `InvalidLink`."""
    for what, text in (("name", link.name), ("prefix", link.prefix)):
        if _LEGAL.fullmatch(text) is None or len(text) > MAX_NAME_CHARS:
            raise InvalidLink(
                f"the {what} of a link has at most {MAX_NAME_CHARS} ASCII letters, digits, '.', '_' and '-': {text!r}"
            )
    if not link.name or link.name in (".", ".."):
        raise InvalidLink("a link needs a name")
    if link.prefix.startswith("__"):
        raise InvalidLink(f"the prefix {link.prefix} begins with __, as internal topics do: choose another one")
    if not 0 < len(link.bootstrap) <= MAX_BOOTSTRAP:
        raise InvalidLink(f"a link needs from 1 to {MAX_BOOTSTRAP} addresses of the source cluster")
    for address in link.bootstrap:
        if len(address) > MAX_TEXT_CHARS or _ADDRESS.fullmatch(address) is None:
            raise InvalidLink(f"{address[:100]!r} is no address host:port")
        if not 0 < int(address.rpartition(":")[2]) <= _PORT_MAX:
            raise InvalidLink(f"the port of {address[:100]!r} is not between 1 and {_PORT_MAX}")
    if len(link.topics) + len(link.exclude) > MAX_PATTERNS:
        raise InvalidLink(f"a link has at most {MAX_PATTERNS} patterns of topics")
    for pattern in (*link.topics, *link.exclude):
        try:
            topic_pattern(pattern)
        except InvalidRegularExpression as error:
            raise InvalidLink(str(error)) from None
    if _LEGAL.fullmatch(link.schemas_topic) is None or not 0 < len(link.schemas_topic) <= _MAX_TOPIC_CHARS:
        raise InvalidLink(f"the topic of the source's registry cannot have this name: {link.schemas_topic[:100]!r}")
    texts = (link.user, link.password_env, link.password_file)
    for text in (*texts, link.ca_file, link.cert_file, link.key_file):
        if len(text) > MAX_TEXT_CHARS:
            raise InvalidLink(f"a text of a link has at most {MAX_TEXT_CHARS} characters: {text[:40]!r}…")
    if link.max_bytes_per_second is not None and link.max_bytes_per_second <= 0:
        raise InvalidLink("max_bytes_per_second must be at least 1: to copy nothing for a while, pause the link")
    _check_login(link)
    _check_secrets(link)


def _check_login(link: Link) -> None:
    if link.user:
        if link.mechanism not in MECHANISMS:
            raise InvalidLink(f"the mechanism is one of {', '.join(MECHANISMS)}, not {link.mechanism!r}")
        if bool(link.password_env) == bool(link.password_file):
            raise InvalidLink("a link with a user names the variable or the file of the brokers that has the password")
    elif link.mechanism or link.password_env or link.password_file:
        raise InvalidLink("a link with a mechanism or a password needs a user")
    if bool(link.cert_file) != bool(link.key_file):
        raise InvalidLink("a client certificate needs both cert_file and key_file")
    if not link.tls and (link.ca_file or link.cert_file):
        raise InvalidLink("certificates need tls")


def _check_secrets(link: Link) -> None:
    """A link names only secrets that are meant for links: the user who creates it chooses where they are sent."""
    if link.password_env and _PASSWORD_VARIABLE.fullmatch(link.password_env) is None:
        raise InvalidLink(
            f"the environment variable with the password of a link begins with {LINK_PASSWORD_PREFIX}, so that no "
            f"other secret of the brokers can be sent: {link.password_env!r}"
        )
    for name in (link.password_file, link.ca_file, link.cert_file, link.key_file):
        if name and _FILE_NAME.fullmatch(name) is None:
            raise InvalidLink(
                f"a file of a link is named without a path: it is in the folder link.files.dir of each broker: {name!r}"
            )


def _without_queue(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if not name.startswith(QUEUE_PREFIX)}


def _with_epoch(state: PartitionState, epoch: int) -> PartitionState:
    return replace(state, leader_epoch=LeaderEpoch(epoch), partition_epoch=state.partition_epoch + 1)
