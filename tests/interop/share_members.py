"""Members of share groups (KIP-932) that say what they are told to."""

import time
import uuid
from typing import Any

from . import raw_client
from .raw_client import Connection, Error

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
GROUP_RESOURCE = 32
PATIENCE_S = 60.0
RECORD_LIMIT = 1


class Member:
    """A member of a share group that says what it is told to, on a connection of its own."""

    def __init__(self, bootstrap: str, group: str, topic_id: uuid.UUID, partition: int = 0) -> None:
        self.connection = Connection(bootstrap)
        self.group, self.topic_id, self.partition = group, topic_id, partition
        self.member_id = str(uuid.uuid4())
        self.epoch = 0

    def close(self) -> None:
        self.connection.close()

    def beat(self, epoch: int, topics: list[str] | None = None) -> Any:
        return self.connection.call(
            raw_client.SHARE_GROUP_HEARTBEAT,
            1,
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=topics,
        )

    def body(self, batches: list[tuple[int, int, int]], epoch: int | None, **fields: Any) -> dict[str, Any]:
        acks = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": [kind]} for first, last, kind in batches
        ]
        partition = {"partition_index": self.partition, "acknowledgement_batches": acks}
        body = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.epoch if epoch is None else epoch,
            "topics": [{"topic_id": self.topic_id, "partitions": [partition]}],
        }
        return body | fields

    def send_fetch(
        self, *acks: tuple[int, int, int], version: int = 2, epoch: int | None = None, **fields: Any
    ) -> raw_client.Pending:
        limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
        return self.connection.send(raw_client.SHARE_FETCH, version, self.body(list(acks), epoch, **(limits | fields)))

    def fetched(self, pending: raw_client.Pending) -> Any:
        answer = self.connection.receive(pending)
        if answer.error_code is Error.none:
            self.epoch += 1
        return answer

    def fetch(self, *acks: tuple[int, int, int], **fields: Any) -> Any:
        return self.fetched(self.send_fetch(*acks, **fields))

    def acknowledge(
        self, *acks: tuple[int, int, int], version: int = 2, epoch: int | None = None, **fields: Any
    ) -> Any:
        answer = self.connection.call(raw_client.SHARE_ACKNOWLEDGE, version, self.body(list(acks), epoch, **fields))
        if answer.error_code is Error.none:
            self.epoch += 1
        return answer


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    """First and last offset, and how often given out."""
    return [
        (one.first_offset, one.last_offset, one.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for one in partition.acquired_records
    ]


def part(answer: Any) -> Any:
    return answer.responses[0].partitions[0]


def until_acquired(member: Member, **fields: Any) -> Any:
    """Fetch until something comes: the first fetch of a group may find its state not open yet."""
    end = time.monotonic() + PATIENCE_S
    while True:
        answer = member.fetch(max_wait=1000, **fields)
        assert answer.error_code is Error.none, answer
        if acquired(answer):
            return answer
        assert time.monotonic() < end, answer


def configure(connection: Connection, group: str, name: str, value: str) -> Error:
    return _alter(connection, group, {"name": name, "config_operation": 0, "value": value})


def unset(connection: Connection, group: str, name: str) -> Error:
    """Delete a setting of a group, which stays when the group is deleted."""
    return _alter(connection, group, {"name": name, "config_operation": 1, "value": None})


def _alter(connection: Connection, group: str, config: dict[str, Any]) -> Error:
    configs = [config]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": configs}
    code: Error = connection.call(raw_client.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]).responses[0].error_code
    return code
