"""A broker with authorization on, and a client whose permissions a test chooses."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from kio.index import load_request_schema

from headrace.config.broker import broker_settings
from headrace.kafka.permissions import Need
from headrace.model.acls import CLUSTER_NAME, Acl, PatternType, Permission, ResourceType
from headrace.model.ids import LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.model.image import SecurityImage
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.replication.partition import Partition
from headrace.runtime.clock import ManualClock
from headrace.security.denial import Denial
from headrace.security.subject import Subject
from headrace.testing.disks import ModelDisk
from headrace.testing.logs import SMALL, LogBench
from tests.entities import build

from .harness import Harness, broker

ALICE = Subject("User:alice", "10.1.2.3", "SCRAM-SHA-256", "clients")
TOPIC, GROUP, TRANSACTIONAL_ID, NEW_TOPIC = "orders", "billing", "payments", "invoices"
NAMES = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.GROUP: GROUP,
    ResourceType.CLUSTER: CLUSTER_NAME,
    ResourceType.TRANSACTIONAL_ID: TRANSACTIONAL_ID,
}


class Secured:
    """The topic `orders` exists and has one record; its client is `User:alice`, who may do nothing at first."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.services = harness.services
        assert isinstance(harness.services.clock, ManualClock)
        self.clock = harness.services.clock
        self.topic_id: UUID = harness.create(TOPIC)
        self.partition = self.host(TOPIC, self.topic_id)
        self.denials: list[Denial] = []
        self.services.security.on_denied.append(self.denials.append)
        harness.peer.subject = ALICE
        self.permit()

    def host(self, name: str, topic_id: UUID) -> Partition:
        """Give this broker the topic's first partition, with one record."""
        log = LogBench(ModelDisk(), replace(SMALL, flush_policy="os"), clock=self.clock).log
        partition = Partition(
            TopicName(name), PartitionIndex(0), TopicId(topic_id), log, LeaderEpoch(0), appended=lambda _: None
        )
        self.services.partitions.add(partition)
        batch = self.batch()
        partition.append(batch, read_header(batch))
        return partition

    def batch(self) -> bytes:
        return build_batch([Record(0, self.clock.wall_ms(), None, b"value")])

    def permit(self, *acls: Acl) -> None:
        """Let these ACLs decide, and no others."""
        image = SecurityImage(acls=frozenset(acls))
        self.services.security.update(image, broker_settings({"authorization.enable": "true"}))

    def call(self, key: int, version: int, **fields: Any) -> Any:
        """The answer to a request of alice."""
        return self.harness.call(key, version, lambda _: build(load_request_schema(key, version), fields))

    def state(self) -> object:
        """Everything that a request could have changed."""
        log = self.partition.log
        return self.harness.metadata.image, log.start_offset, log.end_offset, dict(log.producers.items())


def allow(need: Need, name: str | None = None, principal: str = ALICE.principal) -> Acl:
    resource = NAMES[need.kind] if name is None else name
    return Acl(need.kind, PatternType.LITERAL, resource, principal, "*", need.operation, Permission.ALLOW)


@contextmanager
def secured_broker(data_dir: Path) -> Iterator[Secured]:
    with broker(data_dir) as harness:
        yield Secured(harness)
