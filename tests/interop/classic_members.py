"""Members of classic groups that do what they are told to."""

from typing import Any

from . import raw_client
from .raw_client import Error

SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x01t" + b"\xff\xff\xff\xff"
HIGHEST = {raw_client.SYNC_GROUP: 5, raw_client.HEARTBEAT: 4, raw_client.LEAVE_GROUP: 5}


class Member:
    """One member on a connection of its own, at one version."""

    def __init__(self, bootstrap: str, group: str, version: int, instance_id: str | None = None) -> None:
        self.group, self.version, self.instance_id = group, version, instance_id
        self.connection = raw_client.Connection(bootstrap)
        self.member_id, self.generation = "", -1
        self.members: tuple[Any, ...] = ()
        self.leader = ""
        self._pending: raw_client.Pending | None = None

    def send_join(self, **fields: Any) -> None:
        body = {
            "group_id": self.group, "session_timeout": 10_000, "rebalance_timeout": 10_000, "member_id": self.member_id,
            "group_instance_id": self.instance_id, "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": SUBSCRIPTION}], **fields,
        }  # fmt: skip
        self._pending = self.connection.send(raw_client.JOIN_GROUP, self.version, body)

    def receive_join(self) -> Any:
        assert self._pending is not None
        answer = self.connection.receive(self._pending)
        if answer.error_code in (Error.none, Error.member_id_required):
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.members, self.leader = answer.members, answer.leader
        return answer

    def join(self, **fields: Any) -> Any:
        self.send_join(**fields)
        answer = self.receive_join()
        if answer.error_code is Error.member_id_required:
            self.send_join(**fields)
            answer = self.receive_join()
        return answer

    def call(self, key: int, **fields: Any) -> Any:
        body = {
            "group_id": self.group, "member_id": self.member_id, "generation_id": self.generation,
            "group_instance_id": self.instance_id, **fields,
        }  # fmt: skip
        return self.connection.call(key, min(self.version, HIGHEST[key]), body)

    def sync(self, **fields: Any) -> Any:
        assignments = [{"member_id": one.member_id, "assignment": one.member_id.encode()} for one in self.members]
        said = {"assignments": assignments, "protocol_type": "consumer", "protocol_name": "range", **fields}
        return self.call(raw_client.SYNC_GROUP, **said)

    def heartbeat(self, **fields: Any) -> Error:
        code: Error = self.call(raw_client.HEARTBEAT, **fields).error_code
        return code

    def leave(self) -> Error:
        member = {"member_id": self.member_id, "group_instance_id": self.instance_id}
        answer = self.call(raw_client.LEAVE_GROUP, members=[member])
        code: Error = answer.members[0].error_code if hasattr(answer, "members") else answer.error_code
        return code

    def commit(self, topic: str, offset: int, version: int = 9, **fields: Any) -> Error:
        part = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        body = {
            "group_id": self.group, "generation_id_or_member_epoch": self.generation, "member_id": self.member_id,
            "group_instance_id": self.instance_id, "retention_time": -1,
            "topics": [{"name": topic, "partitions": [part]}], **fields,
        }  # fmt: skip
        code: Error = self.connection.call(raw_client.OFFSET_COMMIT, version, body).topics[0].partitions[0].error_code
        return code
