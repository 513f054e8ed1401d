"""A client of a source cluster: its brokers, topics, settings and groups. Apache Kafka from 3.1 on, or Headrace.

The brokers of the source are held as a `ClusterImage`, so that connections, lanes and reconnects are those
between brokers (`replication/peers.py`). The addresses of the link are brokers with negative ids: they are asked when
no other one answers.

The source may be anyone's, and its answers may be anything. Limits: metadata are fetched at most once a second; a call
is answered within `CALL_TIMEOUT_S` or fails; an answer has at most `MAX_SOURCE_ANSWER_BYTES`, and a source at most
`MAX_SOURCE_BROKERS` brokers. Names that no topic can have here are left out.
"""

import asyncio
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.model.errors import ApiNotServed, PeerUnavailable, ProtocolError, SourceLacksApi, SourceUnavailable
from headrace.model.ids import NO_LEADER, BrokerId
from headrace.model.image import BrokerInfo, ClusterImage, Endpoint
from headrace.model.links import MAX_ORIGINS, MAX_TEXT_CHARS, Link, MirrorState
from headrace.model.provenance import MIRROR_LINK, MIRROR_ORIGINS, MIRROR_PROMOTION, MIRROR_SOURCE, MIRROR_STATE
from headrace.protocol.client_codec import request_schema
from headrace.protocol.codec import make
from headrace.replication.peers import Peers
from headrace.replication.transport import Transport

log = logging.getLogger(__name__)

MAX_SOURCE_ANSWER_BYTES = 16 * 1024 * 1024
"""The metadata of about 400,000 partitions with three replicas. A source with more shows a link only the topics that
its user may describe."""
MAX_SOURCE_BROKERS = 1_000
MAX_SOURCE_GROUPS = 50_000
"""Consumer groups whose offsets are copied over a link."""
CALL_TIMEOUT_S = 10.0
REFRESH_AT_MOST_EVERY_S = 1.0
_LEADERS_TIMEOUT_S = 2.0
"""For each broker that is asked who leads; the others count without it."""
_REFRESH_TIMEOUT_S = 60.0
"""For the first answer of all brokers of the source, of which some may never answer."""
_LANE = "link"
_METADATA, _METADATA_VERSION = 3, 12
_DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS_VERSION = 32, 4
_LIST_GROUPS, _LIST_GROUPS_VERSION = 16, 4
_OFFSET_FETCH, _OFFSET_FETCH_VERSION = 9, 8
_TOPIC_RESOURCE = 2
_SET_ON_TOPIC = 1
_TOPICS_PER_CALL = 200
_GROUPS_PER_CALL = 100
_CONSUMER_PROTOCOLS = ("consumer", "")
"""Of groups with members, and of groups that only commit offsets."""
_CLUSTER_ID = re.compile(r"[A-Za-z0-9._:=+-]{1,100}")
_TOPIC_NAME = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,249}")
_HOST_CHARS_MAX = 255
_SETTING_CHARS_MAX = 4_096
_PORT_MAX = 65_535


class SourcePartition(NamedTuple):
    leader: BrokerId
    """`NO_LEADER` while there is none."""
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class SourceTopic:
    name: str
    topic_id: UUID
    partitions: tuple[SourcePartition, ...]
    is_internal: bool


class SourceSettings(NamedTuple):
    overrides: Mapping[str, str]
    """The settings of the topic itself, without defaults."""
    mirror_source: str
    """Where the source copies the topic from; empty if it does not."""
    origins: tuple[str, ...] = ()
    """Ids of other clusters whose records the topic may have."""
    promotion: str = ""
    """Where the source copied the topic from before it was promoted there, as `Promotion.text`; empty if it did not."""


class SourceOffset(NamedTuple):
    """An offset that a group has committed at the source."""

    offset: int
    leader_epoch: int
    metadata: str


GroupOffsets = Mapping[tuple[str, int], SourceOffset]
"""By topic and partition."""


class SourceCluster:
    """The source cluster of a link, as one broker sees it. `close` ends its connections."""

    def __init__(self, link: Link, transport: Transport, random: Random, own_id: BrokerId) -> None:
        self.link = link
        self.broker_id = own_id
        self._bootstrap = dict(_bootstrap_brokers(link.bootstrap))
        self.image = ClusterImage("", NO_LEADER, self._bootstrap, {}, {}, {}, 0)
        """Its brokers, and none of its topics; before the first answer the addresses of the link."""
        self.topics: Mapping[str, SourceTopic] = MappingProxyType({})
        """All topics that the link may see, as of the last answer. Another object after each."""
        self.peers = Peers(transport, self, random, client_id=f"link-{link.name}")
        self._refreshing = asyncio.Lock()
        self._asked_at_s = float("-inf")
        self._answered_at_s = float("-inf")
        self._last: BrokerId | None = None
        """The broker that answered last."""

    @property
    def cluster_id(self) -> str:
        """The id of the source cluster; empty before the first answer."""
        return self.image.cluster_id

    async def close(self) -> None:
        await self.peers.close()

    async def refresh(self) -> None:
        """Fetch brokers and topics, unless another call does so after this one began. Raises `SourceUnavailable`."""
        loop = asyncio.get_running_loop()
        wanted_since_s = loop.time()
        async with self._refreshing:
            if self._asked_at_s >= wanted_since_s and self._answered_at_s >= self._asked_at_s:
                return
            await asyncio.sleep(max(0.0, self._asked_at_s + REFRESH_AT_MOST_EVERY_S - loop.time()))
            self._asked_at_s = loop.time()
            try:
                async with asyncio.timeout(_REFRESH_TIMEOUT_S):
                    answer = await self._any_broker(_metadata_request())
            except TimeoutError:
                raise SourceUnavailable(
                    f"no broker of the source cluster of the link {self.link.name} answers within "
                    f"{_REFRESH_TIMEOUT_S:g} s"
                ) from None
            self._take_metadata(answer)
            self._answered_at_s = loop.time()

    async def newest_leaders(self, name: str) -> tuple[SourcePartition, ...]:
        """The leaders of a topic, each by the highest leader epoch that a broker knows; () if no broker answers.

        One broker alone may hear of an election seconds late, and it may be the leader that was deposed. A leader that
        acknowledges records knows its epoch, so it is found here if it answers.
        """
        answers = await asyncio.gather(*(self._topic_as_seen_by(broker_id, name) for broker_id in self._brokers()))
        seen = [partitions for partitions in answers if partitions]
        return tuple(max(each, key=lambda known: known.leader_epoch) for each in zip(*seen, strict=False))

    async def _topic_as_seen_by(self, broker_id: BrokerId, name: str) -> tuple[SourcePartition, ...]:
        """The partitions of a topic as a broker knows them; () if it does not answer, or does not know the topic."""
        try:
            answer = await self._call(broker_id, _metadata_request(name), timeout_s=_LEADERS_TIMEOUT_S)
        except SourceUnavailable:
            return ()
        found = [topic for topic in map(_topic, answer.topics) if topic is not None and topic.name == name]
        return found[0].partitions if found else ()

    async def settings_of(self, names: Sequence[str]) -> dict[str, SourceSettings]:
        """The settings of these topics; one that was deleted, or may not be described, is left out."""
        found: dict[str, SourceSettings] = {}
        for some in _slices(names, _TOPICS_PER_CALL):
            answer = await self._any_broker(_settings_request(some))
            for result in answer.results:
                if result.error_code is ErrorCode.none:
                    found[str(result.resource_name)] = _settings(result.configs)
        return found

    async def group_names(self) -> dict[str, BrokerId]:
        """All consumer groups, each with its coordinator, as far as brokers answer."""
        found: dict[str, BrokerId] = {}
        for broker_id in self._brokers():
            try:
                found.update(dict.fromkeys(await self._groups_of(broker_id), broker_id))
            except SourceUnavailable:
                continue
        if len(found) > MAX_SOURCE_GROUPS:
            log.warning("the source of the link %s has %d groups: the offsets of the first %d by name are copied",
                        self.link.name, len(found), MAX_SOURCE_GROUPS)  # fmt: skip
            found = {name: found[name] for name in sorted(found)[:MAX_SOURCE_GROUPS]}
        return found

    async def group_offsets(self, coordinators: Mapping[str, BrokerId]) -> dict[str, GroupOffsets]:
        """The committed offsets of these groups, as far as their coordinators answer."""
        by_broker: dict[BrokerId, list[str]] = {}
        for group, broker_id in coordinators.items():
            by_broker.setdefault(broker_id, []).append(group)
        found: dict[str, GroupOffsets] = {}
        for broker_id, groups in by_broker.items():
            for some in _slices(groups, _GROUPS_PER_CALL):
                try:
                    found.update(_offsets(await self._call(broker_id, _offsets_request(some))))
                except SourceUnavailable:
                    break
        return found

    async def ask(self, request: Any, max_answer_bytes: int) -> Any:
        """The answer of any broker. Raises `SourceUnavailable`, also for one that is longer than this."""
        return await self._any_broker(request, max_answer_bytes)

    async def _groups_of(self, broker_id: BrokerId) -> list[str]:
        schema = request_schema(_LIST_GROUPS, _LIST_GROUPS_VERSION)
        answer = await self._call(broker_id, make(schema.ListGroupsRequest, states_filter=()))
        return [
            str(each.group_id)
            for each in answer.groups
            if each.protocol_type in _CONSUMER_PROTOCOLS and len(each.group_id) <= MAX_TEXT_CHARS
        ]

    def _take_metadata(self, answer: Any) -> None:
        """Note the brokers and topics of an answer. Raises `SourceUnavailable` if it is not one of this source."""
        cluster_id, expected = str(answer.cluster_id or ""), self.link.source_cluster_id or self.cluster_id
        if _CLUSTER_ID.fullmatch(cluster_id) is None:
            raise SourceUnavailable(
                f"the source of the link {self.link.name} says no cluster id, without which loops are not noticed: "
                f"{cluster_id[:100]!r}"
            )
        if len(answer.brokers) > MAX_SOURCE_BROKERS:
            raise SourceUnavailable(
                f"the source of the link {self.link.name} names {len(answer.brokers):,} brokers, and "
                f"{MAX_SOURCE_BROKERS:,} is the most"
            )
        if expected and cluster_id != expected:
            raise SourceUnavailable(
                f"the addresses of the link {self.link.name} lead to the cluster {cluster_id} now, not to {expected}: "
                "correct them, or delete the link and create it again"
            )
        brokers = {
            BrokerId(each.node_id): BrokerInfo(BrokerId(each.node_id), Endpoint(str(each.host), each.port))
            for each in answer.brokers
            if each.node_id >= 0 and 0 < len(each.host) <= _HOST_CHARS_MAX and 0 < each.port <= _PORT_MAX
        }
        self.image = ClusterImage(cluster_id, NO_LEADER, {**brokers, **self._bootstrap}, {}, {}, {}, 0)
        self.topics = MappingProxyType({topic.name: topic for topic in map(_topic, answer.topics) if topic is not None})

    def _brokers(self) -> list[BrokerId]:
        return [broker_id for broker_id in self.image.brokers if broker_id >= 0]

    async def _any_broker(self, request: Any, max_answer_bytes: int = MAX_SOURCE_ANSWER_BYTES) -> Any:
        """The answer of the first broker that answers, beginning with the last one that did."""
        order = sorted(self.image.brokers, key=lambda each: (each != self._last, each < 0))
        failure = SourceUnavailable("the link has no addresses")
        for broker_id in order:
            try:
                answer = await self._call(broker_id, request, max_answer_bytes)
            except SourceUnavailable as error:
                failure = error
                continue
            self._last = broker_id
            return answer
        raise failure

    async def _call(
        self,
        broker_id: BrokerId,
        request: Any,
        max_answer_bytes: int = MAX_SOURCE_ANSWER_BYTES,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Any:
        try:
            return await self.peers.call(
                broker_id, request, lane=_LANE, timeout_s=timeout_s, max_answer_bytes=max_answer_bytes
            )
        except ApiNotServed as error:
            raise SourceLacksApi(f"the source cluster of the link {self.link.name}: {error}") from None
        except (PeerUnavailable, ProtocolError) as error:
            raise SourceUnavailable(f"the source cluster of the link {self.link.name}: {error}") from None


def _bootstrap_brokers(addresses: Iterable[str]) -> Iterator[tuple[BrokerId, BrokerInfo]]:
    for number, address in enumerate(addresses):
        host, _, port = address.rpartition(":")
        broker_id = BrokerId(-2 - number)
        yield broker_id, BrokerInfo(broker_id, Endpoint(host.strip("[]"), int(port)))


def _metadata_request(topic: str | None = None) -> Any:
    """About one topic, or all."""
    schema = request_schema(_METADATA, _METADATA_VERSION)
    topics: tuple[Any, ...] = (make(schema.MetadataRequestTopic, topic_id=None, name=topic),)
    return make(
        schema.MetadataRequest,
        topics=None if topic is None else topics,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )


def _topic(answer: Any) -> SourceTopic | None:
    """None for a topic that is being created or deleted, or may not be described, or whose name no topic can have."""
    if answer.error_code is not ErrorCode.none or answer.topic_id is None:
        return None
    if answer.name is None or _TOPIC_NAME.fullmatch(answer.name) is None:
        return None
    states = {
        int(each.partition_index): SourcePartition(BrokerId(each.leader_id), each.leader_epoch)
        for each in answer.partitions
    }
    if not states or sorted(states) != list(range(len(states))):
        return None
    ordered = tuple(states[index] for index in range(len(states)))
    return SourceTopic(str(answer.name), answer.topic_id, ordered, bool(answer.is_internal))


def _settings_request(names: Sequence[str]) -> Any:
    schema = request_schema(_DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS_VERSION)
    resources: tuple[Any, ...] = tuple(
        make(schema.DescribeConfigsResource, resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
        for name in names
    )
    return make(schema.DescribeConfigsRequest, resources=resources, include_synonyms=False, include_documentation=False)


def _settings(configs: Iterable[Any]) -> SourceSettings:
    mine = {
        str(each.name): str(each.value)
        for each in configs
        if each.config_source == _SET_ON_TOPIC and each.value is not None and len(each.value) <= _SETTING_CHARS_MAX
    }
    mine.pop(MIRROR_LINK, None)
    mirror_source, state = mine.pop(MIRROR_SOURCE, ""), mine.pop(MIRROR_STATE, "")
    origins = tuple(filter(_CLUSTER_ID.fullmatch, mine.pop(MIRROR_ORIGINS, "").split(",", MAX_ORIGINS + 1)))
    promotion = mine.pop(MIRROR_PROMOTION, "")
    return SourceSettings(mine, "" if state == MirrorState.STOPPED.value else mirror_source, origins, promotion)


def _offsets_request(groups: Sequence[str]) -> Any:
    schema = request_schema(_OFFSET_FETCH, _OFFSET_FETCH_VERSION)
    wanted: tuple[Any, ...] = tuple(
        make(schema.OffsetFetchRequestGroup, group_id=group, topics=None) for group in groups
    )
    return make(schema.OffsetFetchRequest, groups=wanted, require_stable=False)


def _offsets(answer: Any) -> dict[str, GroupOffsets]:
    found: dict[str, GroupOffsets] = {}
    for group in answer.groups:
        if group.error_code is ErrorCode.none:
            found[str(group.group_id)] = {
                (str(topic.name), int(part.partition_index)): SourceOffset(
                    int(part.committed_offset), int(part.committed_leader_epoch), str(part.metadata or "")
                )
                for topic in group.topics
                for part in topic.partitions
                if part.error_code is ErrorCode.none and part.committed_offset >= 0
            }
    return found


def _slices(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for first in range(0, len(names), size):
        yield names[first : first + size]
