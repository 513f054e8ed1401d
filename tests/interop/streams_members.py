"""Members of streams groups (KIP-1071) that do what they are told to."""

import time
import uuid
from collections.abc import Mapping
from typing import Any

from . import raw_client
from .raw_client import Connection, Error

REBALANCE_MS = 60_000
PATIENCE_S = 60.0

Tasks = dict[str, list[int]]


def word_count(group: str, source: str, epoch: int = 0, **changelog: Any) -> dict[str, Any]:
    """The topology of an application that reads a topic, repartitions it, and counts."""
    words, counted = f"{group}-words-repartition", f"{group}-counted-changelog"
    return {
        "epoch": epoch,
        "subtopologies": [
            {"subtopology_id": "0", "source_topics": [source], "repartition_sink_topics": [words]},
            {
                "subtopology_id": "1",
                "repartition_source_topics": [{"name": words, "topic_configs": [config("retention.ms", "-1")]}],
                "state_changelog_topics": [
                    {"name": counted, "topic_configs": [config("cleanup.policy", "compact")], **changelog}
                ],
            },
        ],
    }


def plain(source: str, epoch: int = 0) -> dict[str, Any]:
    """The topology of an application that reads a topic, and no more."""
    return {"epoch": epoch, "subtopologies": [{"subtopology_id": "0", "source_topics": [source]}]}


def config(key: str, value: str) -> dict[str, str]:
    return {"key": key, "value": value}


class StreamsMember:
    """A member that says and owns what it is told to."""

    def __init__(self, connection: Connection, group: str, process: str = "", instance_id: str | None = None) -> None:
        self.connection, self.group, self.instance_id = connection, group, instance_id
        self.member_id = uuid.uuid4().hex
        self.process = process or f"process-{self.member_id}"
        self.epoch, self.endpoints_epoch = 0, -1
        self.active: Tasks = {}
        self.standby: Tasks = {}

    def beat(self, **fields: Any) -> Any:
        body = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "endpoint_information_epoch": self.endpoints_epoch,
            "instance_id": self.instance_id,
            "rack_id": None,
            "rebalance_timeout": -1,
            "topology": None,
            "active_tasks": None,
            "standby_tasks": None,
            "warmup_tasks": None,
            "process_id": None,
            "user_endpoint": None,
            "client_tags": None,
            "task_offsets": None,
            "task_end_offsets": None,
            **fields,
        }
        told = self.connection.call(raw_client.STREAMS_GROUP_HEARTBEAT, 0, body)
        if told.error_code is Error.none:
            self.epoch, self.endpoints_epoch = told.member_epoch, told.endpoint_information_epoch
            if told.active_tasks is not None:
                self.active = {one.subtopology_id: sorted(one.partitions) for one in told.active_tasks}
                self.standby = {one.subtopology_id: sorted(one.partitions) for one in told.standby_tasks}
        return told

    def join(self, topology: Mapping[str, Any], /, **fields: Any) -> Any:
        wants = {
            "member_epoch": 0,
            "rebalance_timeout": REBALANCE_MS,
            "topology": topology,
            "process_id": self.process,
            "client_tags": [],
            **owned({}, {}),
            **fields,
        }
        return self.beat(**wants)

    def owns(self) -> Any:
        """Say that it has what it was told to have."""
        return self.beat(**owned(self.active, self.standby))

    def settle(self, *others: "StreamsMember") -> None:
        """Heartbeat, with others, until nobody has anything to do."""
        end = time.monotonic() + PATIENCE_S
        while True:
            for one in (self, *others):
                one.owns()
            seen = described(self.connection, self.group)
            if seen.group_state == "Stable":
                return
            assert time.monotonic() < end, seen
            time.sleep(0.05)


def owned(active: Tasks, standby: Tasks) -> dict[str, Any]:
    def ids(tasks: Tasks) -> list[dict[str, Any]]:
        return [{"subtopology_id": name, "partitions": some} for name, some in tasks.items()]

    return {"active_tasks": ids(active), "standby_tasks": ids(standby), "warmup_tasks": []}


def described(connection: Connection, group: str) -> Any:
    return connection.call(raw_client.STREAMS_GROUP_DESCRIBE, 0, {"group_ids": [group]}).groups[0]


def statuses(told: Any) -> list[int]:
    return [status.status_code for status in told.status or ()]
