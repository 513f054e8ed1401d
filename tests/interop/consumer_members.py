"""Members of consumer groups (KIP-848) that do what they are told to."""

import uuid
from typing import Any

from . import raw_client
from .raw_client import Connection, Error

HEARTBEAT, DESCRIBE = raw_client.CONSUMER_GROUP_HEARTBEAT, raw_client.CONSUMER_GROUP_DESCRIBE
REBALANCE_MS = 60_000


class Member:
    """A member that says and owns what it is told to."""

    def __init__(
        self, connection: Connection, group: str, member_id: str | None = None, instance_id: str | None = None
    ) -> None:
        self.connection, self.group, self.instance_id = connection, group, instance_id
        self.member_id = uuid.uuid4().hex if member_id is None else member_id
        self.epoch = 0
        self.assigned: dict[uuid.UUID, list[int]] = {}

    def beat(self, *, version: int = 1, **fields: Any) -> Any:
        body = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
            "rack_id": None,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
            **fields,
        }
        told = self.connection.call(HEARTBEAT, version, body)
        if told.error_code is Error.none:
            self.epoch, self.member_id = told.member_epoch, told.member_id
            if told.assignment is not None:
                self.assigned = {one.topic_id: sorted(one.partitions) for one in told.assignment.topic_partitions}
        return told

    def join(self, *topics: str, version: int = 1, **fields: Any) -> Any:
        wants = {
            "member_epoch": 0,
            "rebalance_timeout": REBALANCE_MS,
            "subscribed_topic_names": list(topics),
            "topic_partitions": [],
            **fields,
        }
        return self.beat(version=version, **wants)

    def owns(self, owned: dict[uuid.UUID, list[int]] | None = None) -> Any:
        """Say what it owns: what it was told to, or something else."""
        topics = (self.assigned if owned is None else owned).items()
        return self.beat(topic_partitions=[{"topic_id": topic, "partitions": some} for topic, some in topics])

    def numbers(self) -> list[int]:
        return sorted(number for some in self.assigned.values() for number in some)


def described(connection: Connection, group: str) -> Any:
    return connection.call(DESCRIBE, 1, {"group_ids": [group]}).groups[0]
